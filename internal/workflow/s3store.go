package workflow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
)

const (
	// s3Tries is how often an upload is begun, s3Pause half of the first pause
	// between; pauses double.
	s3Tries = 5
	s3Pause = 100 * time.Millisecond
	// s3Region is what stores that have no regions expect.
	s3Region = "us-east-1"
)

// S3Store is a Store in a bucket of Amazon S3 or a server that speaks its
// protocol. It is safe for concurrent use.
type S3Store struct {
	endpoint    url.URL // where the client connects to: scheme and host
	public      url.URL // the bucket's own URL: what object names are put after
	virtual     bool    // the bucket is part of the host's name
	bucket      string
	region      string
	prefix      string
	credentials s3Credentials
	transport   *http.Transport
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
	if err := s3utils.CheckValidBucketName(c.Bucket); err != nil {
		return nil, fmt.Errorf("log_store: s3: %w: bucket %q: %w", ErrInvalid, c.Bucket, err)
	}
	if c.Prefix != "" && !filepath.IsLocal(strings.TrimPrefix(c.Prefix, "/")) {
		return nil, fmt.Errorf("log_store: s3: %w: prefix %q leads out of the bucket", ErrInvalid, c.Prefix)
	}
	transport, err := minio.DefaultTransport(!c.Insecure)
	if err != nil {
		return nil, fmt.Errorf("log_store: s3: %w", err)
	}
	s := &S3Store{
		endpoint: endpoint, bucket: c.Bucket, region: c.Region, prefix: strings.Trim(c.Prefix, "/"),
		credentials: s3Credentials{file: c.CredentialsFile, getenv: os.Getenv}, transport: transport,
	}
	if host, ok := strings.CutPrefix(endpoint.Host, c.Bucket+"."); ok {
		s.endpoint.Host, s.virtual = host, true
	} else {
		s.virtual = s3utils.IsVirtualHostSupported(endpoint, c.Bucket)
	}
	s.public = s.endpoint
	if s.virtual {
		s.public.Host = c.Bucket + "." + s.endpoint.Host
	} else {
		s.public.Path = "/" + c.Bucket
	}
	if s.region == "" {
		s.region = s3utils.GetRegionFromURL(s.endpoint)
	}
	if s.region == "" {
		s.region = s3Region
	}
	if _, err := s.client(credentials.Value{}); err != nil {
		return nil, fmt.Errorf("log_store: s3: %w: endpoint %q: %w", ErrInvalid, c.Endpoint, err)
	}
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

// client does no I/O.
func (s *S3Store) client(secret credentials.Value) (*minio.Client, error) {
	lookup := minio.BucketLookupPath
	if s.virtual {
		lookup = minio.BucketLookupDNS
	}
	return minio.New(s.endpoint.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(secret.AccessKeyID, secret.SecretAccessKey, secret.SessionToken),
		Secure: s.endpoint.Scheme == "https", Transport: s.transport, Region: s.region,
		BucketLookup: lookup, MaxRetries: 1,
	})
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
	secret, err := s.credentials.read()
	if err != nil {
		return err
	}
	client, err := s.client(secret)
	if err != nil {
		return err
	}
	defer s.transport.CloseIdleConnections() // uploads are rare
	for try := range s3Tries {
		if try > 0 {
			if late := concurrency.Sleep(ctx, s3Pause<<try); late != nil {
				return fmt.Errorf("%w, after: %w", late, s.trouble(err))
			}
		}
		if err = s.upload(ctx, client, key, file); err == nil || !passing(err) || ctx.Err() != nil {
			break
		}
	}
	return s.trouble(err)
}

// upload tries it once. It opens the file for itself: an earlier try that was
// answered before all was sent may still be reading.
func (s *S3Store) upload(ctx context.Context, client *minio.Client, key, file string) error {
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
	done, err := client.PutObject(ctx, s.bucket, key, in, info.Size(), minio.PutObjectOptions{
		ContentType: "text/plain; charset=utf-8", DisableMultipart: true,
		// The signature covers the MD5, and so the content. The client's other
		// way, signing piece by piece, panics when the server answers early.
		SendContentMd5: true, DisableContentSha256: true,
	})
	if err == nil && done.ETag == "" {
		return errNotS3
	}
	return err
}
