package orchestrator

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
)

// Headers of a webhook's requests.
const (
	HeaderCluster   = "X-Jorc-Cluster"
	HeaderSignature = "X-Jorc-Signature-256" // "sha256=" and the HMAC of the body in hexadecimal digits
)

// WebhookSink posts events as a JSON array. Any answer but 2xx is a failure, a
// redirection too.
type WebhookSink struct {
	URL        string
	SecretFile string // what is in it, without space around it, signs the requests; empty: unsigned
	Client     *http.Client
}

// NewWebhookSink returns a sink with a client of its own.
func NewWebhookSink(address, secretFile string) WebhookSink {
	return WebhookSink{URL: address, SecretFile: secretFile, Client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Name implements Sink. All of the address but its host may be a secret, so the
// name is the host and a digest of the address.
func (s WebhookSink) Name() string { return "webhook:" + s.shown() }

func (s WebhookSink) shown() string {
	host := "?"
	if u, err := url.Parse(s.URL); err == nil {
		host = u.Host
	}
	digest := sha256.Sum256([]byte(s.URL))
	return host + "#" + hex.EncodeToString(digest[:6])
}

// Send implements Sink.
func (s WebhookSink) Send(ctx context.Context, cluster string, events []Event) error {
	body, err := json.Marshal(events)
	if err != nil {
		return fmt.Errorf("encode events: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post events to %s: the address is not a URL", s.shown())
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(HeaderCluster, cluster)
	if s.SecretFile != "" {
		secret, err := os.ReadFile(s.SecretFile) // each time: it may be changed
		if err != nil {
			return fmt.Errorf("the secret that signs events: %w", err)
		}
		if secret = bytes.TrimSpace(secret); len(secret) == 0 {
			return fmt.Errorf("the secret that signs events: %s is empty", s.SecretFile)
		}
		req.Header.Set(HeaderSignature, Sign(secret, body))
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		var hidden *url.Error
		if errors.As(err, &hidden) {
			err = hidden.Err // without the address
		}
		return fmt.Errorf("post events to %s: %w", s.shown(), err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("post events to %s: %d %s", s.shown(), resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}

// Sign is the value of HeaderSignature for a body.
func Sign(secret, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write(body) // it cannot fail
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}
