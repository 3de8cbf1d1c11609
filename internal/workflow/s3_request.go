package workflow

import (
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"
)

// s3Keys sign the requests to a store.
type s3Keys struct {
	id, secret string
	token      string // of temporary keys; mostly empty
}

// s3Client sends signed requests to one bucket (Signature Version 4).
type s3Client struct {
	bucket    url.URL // the bucket's URL; its path is "" if the bucket is part of the host's name
	region    string
	service   string // in the signature
	transport *http.Transport
}

// s3Error is an answer other than success.
type s3Error struct {
	status  int
	code    string // S3's code, or the status line if the answer is not S3's
	message string
	region  string // of the bucket, if the answer names it
}

func (e *s3Error) Error() string { return e.code + ": " + e.message }

// s3UnsignedPayload replaces the SHA-256 of the content in the signature. The signed
// header Content-Md5 covers the content.
const s3UnsignedPayload = "UNSIGNED-PAYLOAD"

// put writes an object in one request and returns its ETag. The content is read
// twice, first for its MD5.
func (c *s3Client) put(ctx context.Context, keys s3Keys, key, contentType string, content io.ReadSeeker) (string, error) {
	sum := md5.New()
	size, err := io.Copy(sum, content)
	if err != nil {
		return "", err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	where := c.bucket
	where.Path = path.Join("/", where.Path, key)
	where.RawPath = s3Escape(where.Path)
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, where.String(), nil)
	if err != nil {
		return "", err
	}
	// The length may not change between the two readings, and the transport must not
	// close the content.
	if request.ContentLength = size; size > 0 {
		request.Body = io.NopCloser(io.LimitReader(content, size))
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	request.Header.Set("User-Agent", "jorc")
	c.sign(request, keys, time.Now().UTC())
	client := http.Client{
		Transport: c.transport,
		// A redirect needs a signature of its own; the answer names the right region.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	if answer.StatusCode != http.StatusOK {
		return "", parseS3Error(answer)
	}
	return answer.Header.Get("Etag"), nil
}

// sign adds the headers of Amazon's Signature Version 4.
func (c *s3Client) sign(r *http.Request, keys s3Keys, now time.Time) {
	stamp, day := now.Format("20060102T150405Z"), now.Format("20060102")
	r.Header.Set("X-Amz-Date", stamp)
	r.Header.Set("X-Amz-Content-Sha256", s3UnsignedPayload)
	names := []string{"content-md5", "content-type", "host", "x-amz-content-sha256", "x-amz-date"}
	if keys.token != "" {
		r.Header.Set("X-Amz-Security-Token", keys.token)
		names = append(names, "x-amz-security-token")
	}
	var canonical strings.Builder
	fmt.Fprintf(&canonical, "%s\n%s\n\n", r.Method, s3Escape(r.URL.Path))
	for _, name := range names {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.URL.Host
		}
		fmt.Fprintf(&canonical, "%s:%s\n", name, strings.TrimSpace(value))
	}
	signed := strings.Join(names, ";")
	fmt.Fprintf(&canonical, "\n%s\n%s", signed, s3UnsignedPayload)

	scope := strings.Join([]string{day, c.region, c.service, "aws4_request"}, "/")
	digest := sha256.Sum256([]byte(canonical.String()))
	key := []byte("AWS4" + keys.secret)
	for _, part := range []string{day, c.region, c.service, "aws4_request"} {
		key = s3MAC(key, part)
	}
	signature := s3MAC(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hex.EncodeToString(digest[:]))
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x", keys.id, scope, signed, signature))
}

func s3MAC(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	_, _ = io.WriteString(m, text) // a hash never fails
	return m.Sum(nil)
}

// s3Escape returns a path as the signature needs it: all but unreserved characters
// and slashes is escaped, more than net/url does.
func s3Escape(path string) string {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~/"
	var out strings.Builder
	for i := range len(path) {
		if strings.IndexByte(unreserved, path[i]) >= 0 {
			out.WriteByte(path[i])
		} else {
			fmt.Fprintf(&out, "%%%02X", path[i])
		}
	}
	return out.String()
}

// maxS3Answer bounds what is read of an answer.
const maxS3Answer = 1 << 20

// parseS3Error reads what S3 answers instead of success.
func parseS3Error(answer *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxS3Answer))
	if err != nil {
		return &url.Error{Op: "read", URL: answer.Request.URL.Redacted(), Err: err}
	}
	var document struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
		Region  string
	}
	out := &s3Error{status: answer.StatusCode}
	if err := xml.Unmarshal(data, &document); err == nil {
		out.code, out.message, out.region = document.Code, document.Message, strings.TrimSpace(document.Region)
	} else {
		out.code, out.message = answer.Status, string(data)
	}
	if out.region == "" {
		out.region = answer.Header.Get("X-Amz-Bucket-Region")
	}
	return out
}

// s3Service is what the name of an endpoint says about the service behind it.
type s3Service struct {
	region  string // empty: the name has none
	name    string // in signatures
	virtual bool   // the bucket is part of the host's name
	shared  bool   // one of Amazon's public endpoints, which exist once per region
}

// parseS3Host recognizes the endpoints of Amazon, Google and Aliyun by their names.
func parseS3Host(host string) s3Service {
	other := s3Service{name: "s3"}
	if host == "storage.googleapis.com" || strings.HasSuffix(host, ".aliyuncs.com") {
		return s3Service{name: "s3", virtual: true}
	}
	name, amazon := strings.CutSuffix(strings.TrimSuffix(host, ".cn"), ".amazonaws.com")
	if !amazon {
		return other
	}
	if name == "s3" || name == "s3-external-1" {
		return s3Service{name: "s3", virtual: true, shared: true}
	}
	if _, region, ok := strings.Cut(name, ".s3-outposts."); ok {
		return s3Service{region: region, name: "s3-outposts"}
	}
	if private, ok := strings.CutSuffix(name, ".vpce"); ok {
		if _, region, ok := strings.Cut(private, ".s3."); ok {
			return s3Service{region: region, name: "s3", virtual: true}
		}
		return other
	}
	for _, form := range []struct {
		prefix string
		shared bool
	}{
		{"s3-fips.dualstack.", false},
		{"s3-fips.", false},
		{"s3.dualstack.", true},
		{"s3.", true},
		{"s3-", true},
	} {
		if region, ok := strings.CutPrefix(name, form.prefix); ok && region != "" && !strings.Contains(region, ".") {
			return s3Service{region: region, name: "s3", virtual: true, shared: form.shared}
		}
	}
	return other
}

// s3RegionalHost is Amazon's public endpoint of a region, for IPv4 and IPv6.
func s3RegionalHost(region string) string {
	host := "s3.dualstack." + region + ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		host += ".cn"
	}
	return host
}

// withoutDefaultPort returns host without the scheme's own port: servers sign the
// name without it.
func withoutDefaultPort(u url.URL) string {
	if port := u.Port(); port == "80" && u.Scheme == "http" || port == "443" && u.Scheme == "https" {
		return strings.TrimSuffix(u.Host, ":"+port)
	}
	return u.Host
}

// checkS3Bucket returns what is wrong with the name of a bucket.
func checkS3Bucket(name string) error {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	switch {
	case len(name) < 3 || len(name) > 63:
		return errors.New("must have 3 to 63 characters")
	case strings.Trim(name, letters+".-_:") != "" || strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(letters+".-_:", r) }):
		return errors.New("must consist of letters, digits, dots, hyphens and underscores")
	case !strings.Contains(letters, name[:1]) || !strings.Contains(letters, name[len(name)-1:]):
		return errors.New("must begin and end with a letter or digit")
	case strings.Contains(name, "..") || strings.Contains(name, ".-") || strings.Contains(name, "-."):
		return errors.New("must not contain two dots, or a dot beside a hyphen")
	case net.ParseIP(name) != nil:
		return errors.New("must not be an IP address")
	case strings.HasSuffix(name, "--x-s3"):
		return errors.New("is a directory bucket (S3 Express), which is not supported")
	}
	return nil
}

// checkS3Host returns what is wrong with the host of an endpoint.
func checkS3Host(host string) error {
	switch {
	case net.ParseIP(host) != nil:
		return nil
	case len(host) == 0, len(host) > 255, strings.ContainsAny(host, "`~!@#$%^&*()+={}[]|\\\"';:><?/ "),
		strings.ContainsAny(host[:1], "-_."), strings.ContainsAny(host[len(host)-1:], "-_"):
		return errors.New("is neither an IP address nor a host name")
	}
	return nil
}

// newS3Transport returns a transport that also trusts the authorities in the file
// SSL_CERT_FILE, beside those of this host.
func newS3Transport(secure bool) *http.Transport {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       time.Minute,
		TLSHandshakeTimeout:   10 * time.Second,
	}
	if !secure {
		return t
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	file := os.Getenv("SSL_CERT_FILE")
	if file == "" {
		return t
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if data, err := os.ReadFile(file); err == nil { // without it the server's certificate is refused, with the file's name
		roots.AppendCertsFromPEM(data)
	}
	t.TLSClientConfig.RootCAs = roots
	return t
}
