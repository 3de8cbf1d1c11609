package consultest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// NewToken makes an ACL token with the given rules and returns its secret.
func (s *Server) NewToken(rules string) string {
	s.t.Helper()
	name := fmt.Sprintf("test-%d", time.Now().UnixNano())
	s.put("/v1/acl/policy", map[string]any{"Name": name, "Rules": rules}, nil)
	var token struct{ SecretID string }
	s.put("/v1/acl/token", map[string]any{"Policies": []any{map[string]any{"Name": name}}}, &token)
	return token.SecretID
}

// DeleteToken takes back a token by its secret.
func (s *Server) DeleteToken(secret string) {
	s.t.Helper()
	var self struct{ AccessorID string }
	s.request(http.MethodGet, "/v1/acl/token/self", secret, nil, &self)
	s.request(http.MethodDelete, "/v1/acl/token/"+self.AccessorID, s.RootToken, nil, nil)
}

func (s *Server) put(path string, in, out any) {
	s.t.Helper()
	s.request(http.MethodPut, path, s.RootToken, in, out)
}

func (s *Server) request(method, path, token string, in, out any) {
	s.t.Helper()
	if err := s.do(method, path, token, in, out); err != nil {
		s.t.Fatalf("consultest: %s %s: %v", method, path, err)
	}
}

func (s *Server) do(method, path, token string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	base := s.HTTPAddr
	if s.CAFile == "" {
		base = "http://" + base
	}
	req, err := http.NewRequestWithContext(context.Background(), method, base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-Consul-Token", token)
	resp, err := s.httpClient().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s %w", resp.Status, data, err)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

func (s *Server) httpClient() *http.Client {
	roots := x509.NewCertPool()
	if s.CAFile != "" {
		if data, err := os.ReadFile(s.CAFile); err == nil {
			roots.AppendCertsFromPEM(data)
		}
	}
	return &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
}
