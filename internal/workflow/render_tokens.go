package workflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// tokenKey tells the tokens of a job apart.
type tokenKey struct {
	profile string // the cluster; empty: the own
	ttl     time.Duration
}

type token struct {
	secret string
	err    error
}

// ProfileToken is an ACL token that may read and write the profile of the own
// cluster, for two hours from now; empty where ACLs are switched off.
func (f *facts) ProfileToken() (string, error) {
	return f.token(tokenKey{ttl: cluster.DefaultTokenTTL})
}

// GenerateProfileToken is such a token for the profile of a cluster, for a whole
// number of seconds.
func (f *facts) GenerateProfileToken(profile string, seconds any) (string, error) {
	n, err := strconv.ParseInt(fmt.Sprint(seconds), 10, 64)
	least, most := int64(cluster.MinTokenTTL/time.Second), int64(cluster.MaxTokenTTL/time.Second)
	if err != nil || n < least || n > most {
		return "", fmt.Errorf("a token that lives %v seconds: %w: Consul takes %d to %d", seconds, ErrInvalid, least, most)
	}
	if profile == "" {
		return "", fmt.Errorf("a token for a profile: %w: the name of the cluster is empty", ErrInvalid)
	}
	return f.token(tokenKey{profile, time.Duration(n) * time.Second})
}

// TokenIfPossible is ProfileToken for scripts that can do without: empty for a
// task with a token_file, on a host without a cluster, and where no token can be
// made.
func (f *facts) TokenIfPossible() string {
	if f.task.TokenFile != "" || f.ClusterProfile() == "" {
		return ""
	}
	secret, err := f.ProfileToken()
	if err != nil {
		return ""
	}
	return secret
}

// token makes a token, or has made it already.
func (f *facts) token(k tokenKey) (string, error) {
	t, ok := f.tokens[k]
	if !ok {
		t = f.mint(k)
		f.tokens[k] = t
	}
	return t.secret, t.err
}

func (f *facts) mint(k tokenKey) (t token) {
	if f.o.Tokens == nil {
		return token{err: errors.New("this job has no cluster that could make a token: give the task a token_file")}
	}
	ctx, cancel := context.WithTimeout(f.ctx, askTime)
	defer cancel()
	if t.secret, t.err = f.o.Tokens(ctx, k.profile, k.ttl); unanswered(t.err) {
		t.err = &unknownError{t.err}
	}
	return t
}

// unanswered reports whether a request may succeed later. A refusal is final: a job
// that waited for rights would keep the others on this host waiting.
func unanswered(err error) bool {
	for _, later := range []error{consul.ErrUnreachable, consul.ErrRateLimited, consul.ErrOutcomeUnknown, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, later) {
			return true
		}
	}
	return false
}

// secrets are the tokens that were made for the job so far, sorted.
func (f *facts) secrets() []string {
	all := map[string]bool{}
	for _, t := range f.tokens {
		if t.secret != "" {
			all[t.secret] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// betrays reports whether a text holds a token.
func (f *facts) betrays(text string) bool {
	return slices.ContainsFunc(f.secrets(), func(s string) bool { return strings.Contains(text, s) })
}

// discreet is err without the tokens.
func (f *facts) discreet(err error) error {
	if err == nil || !f.betrays(err.Error()) {
		return err
	}
	text := err.Error()
	for _, s := range f.secrets() {
		text = strings.ReplaceAll(text, s, "[redacted]")
	}
	return errors.New(text)
}
