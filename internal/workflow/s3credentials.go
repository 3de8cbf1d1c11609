package workflow

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Keys of a credentials file; the variables of the environment have the same
// names in capitals.
const (
	s3KeyID  = "aws_access_key_id"
	s3Secret = "aws_secret_access_key"
	s3Token  = "aws_session_token"
)

// s3Profile is the section of a credentials file that is used.
const s3Profile = "default"

// s3Credentials tells where the keys of an S3 store are.
type s3Credentials struct {
	file   string // as the AWS tools write it; empty: in the environment
	getenv func(string) string
}

// source names the place for people.
func (c s3Credentials) source() string {
	if c.file != "" {
		return c.file
	}
	return "the environment"
}

// read returns the keys. Its errors name lines and keys, never their values.
func (c s3Credentials) read() (credentials.Value, error) {
	get := func(name string) string { return c.getenv(strings.ToUpper(name)) }
	remedy := "set " + strings.ToUpper(s3KeyID) + " and " + strings.ToUpper(s3Secret) + ", or credentials_file in log_store"
	if c.file != "" {
		data, err := os.ReadFile(c.file)
		if err != nil {
			return credentials.Value{}, fmt.Errorf("credentials_file: %w", err)
		}
		keys, err := parseS3Credentials(string(data))
		if err != nil {
			return credentials.Value{}, fmt.Errorf("credentials_file: %s: %w", c.file, err)
		}
		get = func(name string) string { return keys[name] }
		remedy = "set " + s3KeyID + " and " + s3Secret + " below [" + s3Profile + "]"
	}
	v := credentials.Value{AccessKeyID: get(s3KeyID), SecretAccessKey: get(s3Secret), SessionToken: get(s3Token)}
	if v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return credentials.Value{}, fmt.Errorf("no credentials in %s: %s", c.source(), remedy)
	}
	return v, nil
}

// parseS3Credentials reads the section [default] of a credentials file of AWS:
// lines "key = value", comments begin with # or ;, what is indented below a
// key belongs to that key and is left out.
func parseS3Credentials(text string) (map[string]string, error) {
	keys := map[string]string{}
	section, found := "", false
	number := 0
	for raw := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		line := strings.TrimSpace(raw)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
			continue
		case line[0] == '[':
			name, rest, ok := strings.Cut(line[1:], "]")
			if rest = strings.TrimSpace(rest); !ok || rest != "" && rest[0] != '#' && rest[0] != ';' {
				return nil, fmt.Errorf("line %d: a section is [NAME]", number)
			}
			section = strings.TrimSpace(name)
			found = found || section == s3Profile
			continue
		case raw[0] == ' ' || raw[0] == '\t':
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if name = strings.ToLower(strings.TrimSpace(name)); !ok || name == "" {
			return nil, fmt.Errorf("line %d: want KEY = VALUE", number)
		}
		if section == s3Profile {
			keys[name] = strings.TrimSpace(value)
		}
	}
	if !found {
		return nil, errors.New("there is no section [" + s3Profile + "]")
	}
	return keys, nil
}
