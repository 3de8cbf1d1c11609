package workflow

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
)

// maxS3Text bounds what is repeated of a server's answer.
const maxS3Text = 200

// errNotS3 is a success that no S3 store would announce.
var errNotS3 = errors.New("it answers, but not as an S3 store does: correct endpoint in log_store")

// passing reports whether an upload that failed so is worth another try.
func passing(err error) bool {
	var answer minio.ErrorResponse
	var request *url.Error
	switch {
	case errors.As(err, &answer):
		return answer.StatusCode >= http.StatusInternalServerError ||
			answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusRequestTimeout || answer.Code == "RequestTimeout"
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

// trouble says in one line why an upload failed and what to do.
func (s *S3Store) trouble(err error) error {
	var answer minio.ErrorResponse
	var request *url.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer in time: %w: see that %s can be reached", context.DeadlineExceeded, s.endpoint.Host)
	case errors.As(err, &answer):
	case errors.As(err, &request):
		return s.unreachable(request.Err) // without the URL, which is told already
	default:
		return err
	}
	said := fmt.Sprintf("it says %d %s", answer.StatusCode, quoted(answer.Code))
	if answer.Message != "" && answer.Message != answer.Code {
		said += ", " + quoted(answer.Message)
	}
	return fmt.Errorf("%s (%s)", s.remedy(answer), said)
}

// remedy tells what an answer means, by its S3 error code or else its status.
func (s *S3Store) remedy(answer minio.ErrorResponse) string {
	region := "correct region in log_store"
	if answer.Region != "" && answer.Region != s.region {
		region = "set region = " + quoted(answer.Region) + " in log_store"
	}
	switch answer.Code {
	case "NoSuchBucket":
		return fmt.Sprintf("there is no bucket %q: create it, or correct bucket in log_store", s.bucket)
	case "InvalidAccessKeyId":
		return "the access key is not known there: correct it in " + s.credentials.source()
	case "SignatureDoesNotMatch":
		return "the secret key is wrong: correct it in " + s.credentials.source()
	case "ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired":
		return "the session token is not valid any more: replace the keys in " + s.credentials.source()
	case "AuthorizationHeaderMalformed", "InvalidRegion", "IncorrectEndpoint", "PermanentRedirect", "IllegalLocationConstraintException":
		return fmt.Sprintf("the bucket is not in region %q: %s", s.region, region)
	case "RequestTimeTooSkewed":
		return "this host's clock is wrong: set it, and see that NTP runs"
	case "AccessDenied", "AllAccessDisabled", "AccountProblem":
		return fmt.Sprintf("denied: the access key in %s must be allowed s3:PutObject in bucket %q", s.credentials.source(), s.bucket)
	}
	switch {
	case answer.StatusCode >= http.StatusInternalServerError, answer.StatusCode == http.StatusTooManyRequests:
		return fmt.Sprintf("the server has trouble, %d times in a row: the log stays on this host", s3Tries)
	case answer.Code == "NoSuchKey", strings.HasPrefix(answer.Code, fmt.Sprint(answer.StatusCode)):
		return "it does not answer as an S3 store does: correct endpoint or insecure in log_store"
	}
	return "refused: the log stays on this host"
}

// unreachable tells why there was no answer.
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
func quoted(text string) string {
	if len(text) > maxS3Text {
		text = strings.ToValidUTF8(text[:maxS3Text], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}
