package workflow

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/jorc/jorc/internal/config"
)

// TestS3Hosts: names of endpoints mean what they mean for minio-go.
func TestS3Hosts(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"s3.amazonaws.com", "s3-external-1.amazonaws.com", "s3.eu-central-1.amazonaws.com", "s3-eu-west-1.amazonaws.com",
		"s3.dualstack.us-west-2.amazonaws.com", "s3-fips.us-gov-west-1.amazonaws.com", "s3-fips.dualstack.us-gov-east-1.amazonaws.com",
		"s3.cn-north-1.amazonaws.com.cn", "s3.dualstack.cn-north-1.amazonaws.com.cn", "bucket.vpce-1a2b3c4d.s3.us-east-1.vpce.amazonaws.com",
		"x.s3-outposts.us-east-1.amazonaws.com", "my.elb.us-east-1.amazonaws.com", "s3.control.us-east-1.amazonaws.com",
		"storage.googleapis.com", "oss-cn-hangzhou.aliyuncs.com", "s3.example.com", "localhost", "127.0.0.1", "amazonaws.com",
	} {
		u := url.URL{Scheme: "https", Host: host}
		got := parseS3Host(host)
		want(t, "region of "+host, got.region, s3utils.GetRegionFromURL(u))
		want(t, "virtual host of "+host, got.virtual, s3utils.IsVirtualHostSupported(u, "logs"))
	}
}

func TestS3Buckets(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", " ", "a", "abc", "logs", "Logs", "my-logs.2026", "a_b:c", "-ab", "ab-", "a..b", "a.-b", "a-.b", "a/b", `a\b`, "..", "10.0.0.1", "ünï",
		strings.Repeat("a", 63), strings.Repeat("a", 64), "x y",
	} {
		want(t, "bucket "+name+" is valid", checkS3Bucket(name) == nil, s3utils.CheckValidBucketName(name) == nil)
	}
	wantText(t, "error", checkS3Bucket("logs--use1-az4--x-s3").Error(), "directory bucket")
}

// TestS3Region: Amazon's public endpoints exist once per region; all others are
// connected to as they are configured.
func TestS3Region(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ endpoint, region, want string }{
		{"s3.amazonaws.com", "", "https://logs.s3.dualstack.us-east-1.amazonaws.com"},
		{"s3.amazonaws.com", "eu-west-1", "https://logs.s3.dualstack.eu-west-1.amazonaws.com"},
		{"s3.cn-north-1.amazonaws.com.cn", "", "https://logs.s3.dualstack.cn-north-1.amazonaws.com.cn"},
		{"s3-fips.us-gov-west-1.amazonaws.com", "", "https://logs.s3-fips.us-gov-west-1.amazonaws.com"},
		{"s3.example:443", "", "https://s3.example/logs"},
		{"[2001:db8::1]:443", "", "https://[2001:db8::1]/logs"},
		{"s3.example:9000", "", "https://s3.example:9000/logs"},
	} {
		s, err := NewS3Store(config.S3{Endpoint: test.endpoint, Bucket: "logs", Region: test.region})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "URL of "+test.endpoint, s.client.bucket.String(), test.want)
	}
}

// TestS3Token: the token of temporary keys is sent and signed.
func TestS3Token(t *testing.T) {
	t.Parallel()
	headers := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		w.Header().Set("ETag", `"x"`)
	}))
	t.Cleanup(server.Close)
	keys := textFile(t, "[default]\naws_access_key_id = a\naws_secret_access_key = b\naws_session_token = c\n")
	store, err := NewS3Store(config.S3{Endpoint: server.URL, Bucket: "logs", Insecure: true, CredentialsFile: keys})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), "x", textFile(t, "text")); err != nil {
		t.Fatal(err)
	}
	got := <-headers
	want(t, "token", got.Get("X-Amz-Security-Token"), "c")
	wantText(t, "signature", got.Get("Authorization"), ";x-amz-security-token,", "Credential=a/")
}
