package workflow

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
)

func TestS3Settings(t *testing.T) {
	t.Parallel()
	good := config.S3{Endpoint: "s3.example:9000", Bucket: "logs"}
	for _, test := range []struct {
		change func(*config.S3)
		want   string // of the bucket, and its region
	}{
		{func(*config.S3) {}, "https://s3.example:9000/logs us-east-1"},
		{func(c *config.S3) { c.Region = "eu-1" }, "https://s3.example:9000/logs eu-1"},
		{func(c *config.S3) { c.Insecure = true }, "http://s3.example:9000/logs us-east-1"},
		{func(c *config.S3) { c.Endpoint, c.Insecure = "http://10.0.0.1/", true }, "http://10.0.0.1/logs us-east-1"},
		{func(c *config.S3) { c.Endpoint = "https://logs.s3.example" }, "https://logs.s3.example us-east-1"},
		{func(c *config.S3) { c.Endpoint = "s3.eu-central-1.amazonaws.com" }, "https://logs.s3.eu-central-1.amazonaws.com eu-central-1"},
	} {
		c := good
		test.change(&c)
		s, err := NewS3Store(c)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		want(t, "bucket and region of "+c.Endpoint, s.public.String()+" "+s.region, test.want)
	}
	for _, test := range []struct {
		change func(*config.S3)
		want   string
	}{
		{func(c *config.S3) { c.Endpoint = "http://s3.example" }, "not encrypted: use https, or say insecure = true"},
		{func(c *config.S3) { c.Endpoint, c.Insecure = "https://s3.example", true }, "remove one"},
		{func(c *config.S3) { c.Endpoint = "https://key:" + s3TestSecret + "@s3.example" }, "credentials_file"},
		{func(c *config.S3) { c.Endpoint = "https://key:" + s3TestSecret + "@s3 example" }, "not HOST[:PORT] or a URL"},
		{func(c *config.S3) { c.Endpoint = "s3.example/logs" }, "settings of their own"},
		{func(c *config.S3) { c.Endpoint = "ftp://s3.example" }, "not HOST[:PORT]"},
		{func(c *config.S3) { c.Endpoint = "s3_.example!" }, `endpoint "s3_.example!"`},
		{func(c *config.S3) { c.Bucket = "a" }, `bucket "a"`},
		{func(c *config.S3) { c.Prefix = "../x" }, "leads out of the bucket"},
	} {
		c := good
		test.change(&c)
		s, err := NewStore(&config.LogStore{S3: &c})
		if s != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, %v, want ErrInvalid", test.want, s, err)
			continue
		}
		wantText(t, "error", err.Error(), "log_store: s3: ", test.want)
		if secretsIn(err.Error()) {
			t.Errorf("a secret shows: %v", err)
		}
	}
}

// TestS3Document: the document's log store is one.
func TestS3Document(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)<!-- tested: log_store -->\n```hcl\n(.*?)```\n").FindSubmatch(data)
	if m == nil {
		t.Fatal("the document has no log store to test")
	}
	file := filepath.Join(t.TempDir(), "store.hcl")
	if err := os.WriteFile(file, m[1], 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load([]string{file}, config.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	store, err := NewStore(c.LogStore)
	if err != nil {
		t.Fatal(err)
	}
	s3, ok := store.(*S3Store)
	if !ok {
		t.Fatalf("got a %T", store)
	}
	want(t, "bucket", s3.public.String()+"/"+s3.prefix, "https://s3.example.com/logs/jorc")
}

func TestS3Put(t *testing.T) {
	t.Parallel()
	for name, tls := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startS3(t, tls)
			store := s.store("/jorc/", nil)
			for _, text := range []string{"one\n", "", strings.Repeat("lines\n", 1<<18), "ünï\x00\xff"} {
				where, err := store.Put(t.Context(), "a/j/01-one.log", textFile(t, text))
				if err != nil {
					t.Fatal(err)
				}
				want(t, "url", where, store.endpoint.String()+"/logs/jorc/a/j/01-one.log")
				s.wantObject("jorc/a/j/01-one.log", text)
			}
			odd := "n ü%41?#/x+y.log"
			where, err := s.store("", nil).Put(t.Context(), odd, textFile(t, "odd"))
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(where)
			if err != nil {
				t.Fatal(err)
			}
			want(t, "path", u.Path, "/logs/"+odd)
			s.wantObject(odd, "odd")
			for _, name := range []string{"../x", "/x", ""} {
				if _, err := store.Put(t.Context(), name, textFile(t, "")); !errors.Is(err, ErrInvalid) {
					t.Errorf("%q: got %v, want ErrInvalid", name, err)
				}
			}
		})
	}
}

// TestS3VirtualHost: the bucket is a part of the host's name.
func TestS3VirtualHost(t *testing.T) {
	t.Parallel()
	s := startS3(t, false)
	store := dialing(s.store("", func(c *config.S3) { c.Endpoint = "logs.s3.test" }), s.addr)
	where, err := store.Put(t.Context(), "a/x.log", textFile(t, "text"))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "url", where, "http://logs.s3.test/a/x.log")
	s.wantObject("a/x.log", "text")
}

// TestS3Trouble: what goes wrong is said in one line, with what to do.
func TestS3Trouble(t *testing.T) {
	t.Parallel()
	plain, tls := startS3(t, false), startS3(t, true)
	denied := plain.user("nobody", "nobody-secret")
	answering := func(status int, text string) func(*config.S3) {
		l := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		}))
		t.Cleanup(l.Close)
		return func(c *config.S3) { c.Endpoint = l.URL }
	}
	noFile := filepath.Join(t.TempDir(), "none")
	for _, test := range []struct {
		name   string
		server *s3Server
		change func(*config.S3)
		want   string
	}{
		{"no bucket", plain, func(c *config.S3) { c.Bucket = "none" }, `there is no bucket "none": create it, or correct bucket`},
		{"denied", plain, func(c *config.S3) { c.CredentialsFile = denied }, "denied: the access key in " + denied + ` must be allowed s3:PutObject in bucket "logs"`},
		{"unknown key", plain, func(c *config.S3) { c.CredentialsFile = credentialsFile(t, "x", "y") }, "the access key is not known there: correct it in /"},
		{"wrong secret", plain, func(c *config.S3) { c.CredentialsFile = credentialsFile(t, s3TestKey, "y") }, "the secret key is wrong: correct it in /"},
		{"region", plain, func(c *config.S3) { c.Region = "eu-1" }, `the bucket is not in region "eu-1": `},
		{"nobody listens", plain, func(c *config.S3) { c.Endpoint = "127.0.0.1:1" }, "connection refused: correct endpoint or insecure in log_store, or see that 127.0.0.1:1 can be reached"},
		{"no such host", plain, func(c *config.S3) { c.Endpoint = "no-such-host.invalid" }, "correct endpoint or insecure in log_store"},
		{"another server", plain, answering(200, "hello"), "it answers, but not as an S3 store does: correct endpoint"},
		{"not found", plain, answering(404, "<html>\nnot\nhere"), "it does not answer as an S3 store does: correct endpoint"},
		{"not allowed", plain, answering(405, strings.Repeat("no\n", 999)), "it does not answer as an S3 store does: correct endpoint"},
		{"trouble", plain, answering(503, ""), "the server has trouble, 5 times in a row: the log stays on this host"},
		{"strange", plain, answering(400, "<Error><Code>New</Code><Message>a\nb</Message></Error>"), `refused: the log stays on this host (it answers 400 "New", "a\nb")`},
		{"moved", plain, answering(301, "<Error><Code>PermanentRedirect</Code><Region>eu-7</Region></Error>"), `set region = "eu-7" in log_store`},
		{"clock", plain, answering(403, "<Error><Code>RequestTimeTooSkewed</Code></Error>"), "this host's clock is wrong"},
		{"expired", plain, answering(400, "<Error><Code>InvalidToken</Code></Error>"), "the session token is no longer valid"},
		{"no TLS there", plain, func(c *config.S3) { c.Insecure = false }, "it does not speak TLS: correct endpoint, or say insecure = true"},
		{"TLS there", tls, func(c *config.S3) { c.Insecure = true }, "insecure"},
		{"no credentials file", plain, func(c *config.S3) { c.CredentialsFile = noFile }, "credentials_file: open " + noFile + ": no such file"},
		{"no keys", plain, func(c *config.S3) { c.CredentialsFile = textFile(t, "[default]\n") }, "set aws_access_key_id and aws_secret_access_key below [default]"},
		{"rubbish", plain, func(c *config.S3) { c.CredentialsFile = textFile(t, "[default]\n"+s3TestSecret) }, "line 2: want KEY = VALUE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			store := test.server.store("", test.change)
			file := textFile(t, strings.Repeat("x", 1<<10))
			where, err := store.Put(t.Context(), "a/x.log", file)
			if where != "" || err == nil {
				t.Fatalf("got %q, %v, want an error", where, err)
			}
			wantText(t, "error", err.Error(), "log store: put "+file+" to http", test.want)
			if text := err.Error(); strings.Contains(text, "\n") || len(text) > 700 || secretsIn(text) {
				t.Errorf("got %q, want a line without secrets", text)
			}
		})
	}

	t.Run("authority", func(t *testing.T) {
		t.Parallel()
		store := tls.store("", nil)
		store.client.transport.TLSClientConfig.RootCAs = nil
		_, err := store.Put(t.Context(), "x", textFile(t, "text"))
		if err == nil {
			t.Fatal("got no error")
		}
		wantText(t, "error", err.Error(), "its certificate is not to be trusted", "SSL_CERT_FILE")
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		store := plain.store("", nil)
		if _, err := store.Put(t.Context(), "x", noFile); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v, want that the file is not there", err)
		}
		if _, err := store.Put(t.Context(), "x", t.TempDir()); !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	})
}

func TestS3Environment(t *testing.T) {
	t.Parallel()
	s := startS3(t, false)
	store := s.store("", func(c *config.S3) { c.CredentialsFile = "" })
	env := map[string]string{}
	store.credentials.getenv = func(name string) string { return env[name] }
	_, err := store.Put(t.Context(), "x", textFile(t, "text"))
	if err == nil {
		t.Fatal("got no error without credentials")
	}
	wantText(t, "error", err.Error(), "no credentials in the environment: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or credentials_file")
	env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"] = s3TestKey, s3TestSecret
	if _, err := store.Put(t.Context(), "x", textFile(t, "text")); err != nil {
		t.Fatal(err)
	}
	s.wantObject("x", "text")
}

// TestS3Retries: passing trouble of the server is not the log's end.
func TestS3Retries(t *testing.T) {
	t.Parallel()
	s := startS3(t, false)
	var asked atomic.Int32
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: s.addr})
		r.Out.Host = r.In.Host
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // the connection breaks
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	text := strings.Repeat("lines\n", 1<<16)
	if _, err := s.store("", func(c *config.S3) { c.Endpoint = front.URL }).Put(t.Context(), "x", textFile(t, text)); err != nil {
		t.Fatal(err)
	}
	want(t, "requests", asked.Load(), int32(3))
	s.wantObject("x", text)
}

// TestS3End: an upload ends with its context.
func TestS3End(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	store, err := NewS3Store(config.S3{Endpoint: silent.URL, Bucket: "logs", Insecure: true, CredentialsFile: credentialsFile(t, "x", "y")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // ends with Put
		<-asked
		cancel()
	}()
	if _, err := store.Put(ctx, "x", textFile(t, "")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if _, err := store.Put(ctx, "x", textFile(t, "")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

// TestS3Memory: a log is streamed. Not parallel: it counts all allocations.
func TestS3Memory(t *testing.T) {
	const size = 64 << 20
	for name, tls := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			s := startS3(t, tls)
			file := textFile(t, "")
			if err := os.Truncate(file, size); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := s.store("", nil).Put(t.Context(), "x", file); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > size/4 {
				t.Errorf("%d bytes were allocated for a log of %d", got, size)
			}
		})
	}
}

// TestS3Job: the log of a task that failed is stored; trouble with that is
// told, and changes nothing.
func TestS3Job(t *testing.T) {
	t.Parallel()
	s := startS3(t, false)
	var said bytes.Buffer
	log := hclog.New(&hclog.LoggerOptions{Output: &said, Level: hclog.Trace})
	h := newHost(t, Options{Store: s.store("p", nil), Log: log}, sh("one", "echo fine"), sh("two", "echo the end; exit 3"))
	res := h.run()
	want(t, "url", res.LogURL, "http://"+s.addr+"/logs/p/n1/j/02-two.log")
	want(t, "log error", res.Tasks[1].LogError, "")
	s.wantObject("p/n1/j/02-two.log", "the end\n")

	h = newHost(t, Options{Store: s.store("", func(c *config.S3) { c.Bucket = "none" }), Log: log}, sh("one", "exit 3"))
	res = h.run()
	want(t, "state", res.State, Failed)
	want(t, "why", res.Why, "exit code 3")
	want(t, "url", res.LogURL, "")
	wantText(t, "log error", res.Tasks[0].LogError, "not stored: log store: put ", `there is no bucket "none"`)
	wantText(t, "log", said.String(), "the log could not be stored", `there is no bucket \"none\"`)
	if secretsIn(said.String()) {
		t.Errorf("a secret shows in the log: %s", said.String())
	}
}
