package workflow

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/text"
)

const (
	// s3Tries is how often an upload is attempted, s3Pause the first pause between
	// attempts, maxS3Pause the longest.
	s3Tries    = 5
	s3Pause    = 200 * time.Millisecond
	maxS3Pause = 2 * time.Second
	// s3Region is what stores that have no regions expect.
	s3Region = "us-east-1"
)

// S3Store is a Store in a bucket of Amazon S3 or a server that speaks its
// protocol. It is safe for concurrent use.
type S3Store struct {
	endpoint    url.URL // where the client connects to: scheme and host
	public      url.URL // the bucket's own URL: what object names are put after
	bucket      string
	region      string
	prefix      string
	credentials s3Credentials
	client      *s3Client
}

// NewS3Store checks c without asking the server; errors are ErrInvalid.
//
// The endpoint is HOST[:PORT] or a URL of it, spoken to in TLS unless c is
// insecure. Objects are at ENDPOINT/BUCKET/…, except where the endpoint's name
// begins with that of the bucket, and at Amazon's and Google's: there the
// bucket is part of the host's name.
func NewS3Store(c config.S3) (*S3Store, error) {
	endpoint, err := s3Endpoint(c)
	if err != nil {
		return nil, fmt.Errorf("log_store: s3: %w: %w", ErrInvalid, err)
	}
	if err := checkS3Bucket(c.Bucket); err != nil {
		return nil, fmt.Errorf("log_store: s3: %w: bucket %q %w", ErrInvalid, c.Bucket, err)
	}
	if c.Prefix != "" && !filepath.IsLocal(strings.TrimPrefix(c.Prefix, "/")) {
		return nil, fmt.Errorf("log_store: s3: %w: prefix %q leads out of the bucket", ErrInvalid, c.Prefix)
	}
	if err := checkS3Host(endpoint.Hostname()); err != nil {
		return nil, fmt.Errorf("log_store: s3: %w: endpoint %q %w", ErrInvalid, c.Endpoint, err)
	}
	s := &S3Store{
		endpoint: endpoint, bucket: c.Bucket, region: c.Region, prefix: strings.Trim(c.Prefix, "/"),
		credentials: s3Credentials{file: c.CredentialsFile, getenv: os.Getenv},
	}
	var virtual bool
	s.endpoint.Host, virtual = strings.CutPrefix(endpoint.Host, c.Bucket+".")
	service := parseS3Host(s.endpoint.Hostname())
	if !virtual { // a dot in the bucket's name fails the check of the certificate
		virtual = service.virtual && (endpoint.Scheme == "http" || !strings.Contains(c.Bucket, "."))
	}
	s.region = cmp.Or(s.region, service.region, s3Region)
	inBucket := func(u url.URL) url.URL {
		if virtual {
			u.Host = c.Bucket + "." + u.Host
		} else {
			u.Path = "/" + c.Bucket
		}
		return u
	}
	s.public = inBucket(s.endpoint)
	target := s.endpoint
	target.Host = withoutDefaultPort(target)
	if service.shared {
		target.Host = s3RegionalHost(s.region)
	}
	s.client = &s3Client{bucket: inBucket(target), region: s.region, service: service.name, transport: newS3Transport(!c.Insecure)}
	return s, nil
}

// s3Endpoint is the URL that c.Endpoint means.
func s3Endpoint(c config.S3) (url.URL, error) {
	text := c.Endpoint
	if !strings.Contains(text, "://") {
		scheme := "https://"
		if c.Insecure {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil: // it would repeat the text, a password in it included
		return url.URL{}, errors.New("endpoint is not HOST[:PORT] or a URL")
	case u.User != nil:
		return url.URL{}, errors.New("endpoint holds credentials: they belong into credentials_file")
	case u.Scheme == "http" && !c.Insecure:
		return url.URL{}, fmt.Errorf("endpoint %q is not encrypted: use https, or say insecure = true", c.Endpoint)
	case u.Scheme == "https" && c.Insecure:
		return url.URL{}, fmt.Errorf("endpoint %q is encrypted, but insecure is true: remove one", c.Endpoint)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", strings.Trim(u.Path, "/") != "", u.RawQuery != "", u.Fragment != "":
		return url.URL{}, fmt.Errorf("endpoint %q is not HOST[:PORT] or a URL of that: the bucket and a prefix have settings of their own", c.Endpoint)
	}
	return url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// Put uploads the file as UTF-8 text in one request, streamed from the disk,
// and returns the object's URL. It reads the credentials each time, so that
// they may be changed while jorc runs. Errors say what to do.
func (s *S3Store) Put(ctx context.Context, name, file string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("log %q: %w: not a name below the log store", name, ErrInvalid)
	}
	key := path.Join(s.prefix, name)
	where := s.public
	where.Path = path.Join("/", where.Path, key)
	if err := s.put(ctx, key, file); err != nil {
		return "", fmt.Errorf("log store: put %s to %s: %w", file, &where, err)
	}
	return where.String(), nil
}

// put tries it a few times while the trouble may pass.
func (s *S3Store) put(ctx context.Context, key, file string) error {
	keys, err := s.credentials.read()
	if err != nil {
		return err
	}
	defer s.client.transport.CloseIdleConnections() // uploads are rare
	pauses := concurrency.NewBackoff(s3Pause, maxS3Pause)
	for try := range s3Tries {
		if try > 0 {
			if late := pauses.Wait(ctx); late != nil {
				return fmt.Errorf("%w, after: %w", late, s.explain(err))
			}
		}
		if err = s.upload(ctx, keys, key, file); err == nil || !isTransient(err) || ctx.Err() != nil {
			break
		}
	}
	return s.explain(err)
}

// upload tries it once. It opens the file for itself: an earlier try that was
// answered before all was sent may still be reading.
func (s *S3Store) upload(ctx context.Context, keys s3Keys, key, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "read", Path: file, Err: ErrInvalid}
	}
	tag, err := s.client.put(ctx, keys, key, "text/plain; charset=utf-8", in)
	if err == nil && tag == "" {
		return errNotS3
	}
	return err
}

// Keys of a credentials file; the variables of the environment have the same
// names in capitals.
const (
	s3KeyID  = "aws_access_key_id"
	s3Secret = "aws_secret_access_key"
	s3Token  = "aws_session_token"
)

// s3Profile is the section of a credentials file that is used.
const s3Profile = "default"

// s3Credentials is where the keys of an S3 store are.
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
func (c s3Credentials) read() (s3Keys, error) {
	get := func(name string) string { return c.getenv(strings.ToUpper(name)) }
	remedy := "set " + strings.ToUpper(s3KeyID) + " and " + strings.ToUpper(s3Secret) + ", or credentials_file in log_store"
	if c.file != "" {
		data, err := os.ReadFile(c.file)
		if err != nil {
			return s3Keys{}, fmt.Errorf("credentials_file: %w", err)
		}
		keys, err := parseS3Credentials(string(data))
		if err != nil {
			return s3Keys{}, fmt.Errorf("credentials_file: %s: %w", c.file, err)
		}
		get = func(name string) string { return keys[name] }
		remedy = "set " + s3KeyID + " and " + s3Secret + " below [" + s3Profile + "]"
	}
	v := s3Keys{id: get(s3KeyID), secret: get(s3Secret), token: get(s3Token)}
	if v.id == "" || v.secret == "" {
		return s3Keys{}, fmt.Errorf("no credentials in %s: %s", c.source(), remedy)
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

// maxS3Text bounds what is repeated of a server's answer.
const maxS3Text = 200

// errNotS3 is a success that no S3 store would announce.
var errNotS3 = errors.New("it answers, but not as an S3 store does: correct endpoint in log_store")

// isTransient reports whether an upload that failed so is worth another try.
func isTransient(err error) bool {
	var answer *s3Error
	var request *url.Error
	switch {
	case errors.As(err, &answer):
		return answer.status >= http.StatusInternalServerError ||
			answer.status == http.StatusTooManyRequests || answer.status == http.StatusRequestTimeout || answer.code == "RequestTimeout"
	case errors.As(err, &request):
		return !noTLS(err) && !untrusted(err)
	}
	return false
}

func noTLS(err error) bool {
	return strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

func untrusted(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate)
}

// explain says in one line why an upload failed and what to do.
func (s *S3Store) explain(err error) error {
	var answer *s3Error
	var request *url.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer in time: %w: see that %s can be reached", context.DeadlineExceeded, s.endpoint.Host)
	case errors.As(err, &answer):
	case errors.As(err, &request):
		return s.unreachable(request.Err) // without the URL, which the caller adds
	default:
		return err
	}
	answered := fmt.Sprintf("it answers %d %s", answer.status, quoted(answer.code))
	if answer.message != "" && answer.message != answer.code {
		answered += ", " + quoted(answer.message)
	}
	return fmt.Errorf("%s (%s)", s.remedy(answer), answered)
}

// remedy returns what an answer means and what to do, by its S3 error code or else its status.
func (s *S3Store) remedy(answer *s3Error) string {
	region := "correct region in log_store"
	if answer.region != "" && answer.region != s.region {
		region = "set region = " + quoted(answer.region) + " in log_store"
	}
	switch answer.code {
	case "NoSuchBucket":
		return fmt.Sprintf("there is no bucket %q: create it, or correct bucket in log_store", s.bucket)
	case "InvalidAccessKeyId":
		return "the access key is not known there: correct it in " + s.credentials.source()
	case "SignatureDoesNotMatch":
		return "the secret key is wrong: correct it in " + s.credentials.source()
	case "ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired":
		return "the session token is no longer valid: replace the keys in " + s.credentials.source()
	case "AuthorizationHeaderMalformed", "InvalidRegion", "IncorrectEndpoint", "PermanentRedirect", "IllegalLocationConstraintException":
		return fmt.Sprintf("the bucket is not in region %q: %s", s.region, region)
	case "RequestTimeTooSkewed":
		return "this host's clock is wrong: set it, and see that NTP runs"
	case "AccessDenied", "AllAccessDisabled", "AccountProblem":
		return fmt.Sprintf("denied: the access key in %s must be allowed s3:PutObject in bucket %q", s.credentials.source(), s.bucket)
	}
	switch {
	case answer.status >= http.StatusInternalServerError, answer.status == http.StatusTooManyRequests:
		return fmt.Sprintf("the server has trouble, %d times in a row: the log stays on this host", s3Tries)
	case answer.code == "NoSuchKey", strings.HasPrefix(answer.code, fmt.Sprint(answer.status)):
		return "it does not answer as an S3 store does: correct endpoint or insecure in log_store"
	}
	return "refused: the log stays on this host"
}

// unreachable returns why there was no answer.
func (s *S3Store) unreachable(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case noTLS(err):
		return errors.New("it does not speak TLS: correct endpoint, or say insecure = true in log_store")
	case untrusted(err):
		return fmt.Errorf("its certificate is not to be trusted: %w: add its authority to this host's, or to the file SSL_CERT_FILE", err)
	}
	return fmt.Errorf("no answer: %w: correct endpoint or insecure in log_store, or see that %s can be reached", err, s.endpoint.Host)
}

// quoted is foreign text in one line, not too long.
func quoted(s string) string {
	return strconv.Quote(text.Truncate(s, maxS3Text))
}
