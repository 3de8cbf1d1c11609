package consultest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestWholeBody: the body of a request can still be read when the answer has begun.
func TestWholeBody(t *testing.T) {
	t.Parallel()
	front := httptest.NewServer(consultest.WholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := http.NewResponseController(w).Flush()
		body, readerr := io.ReadAll(r.Body)
		if err != nil || readerr != nil || len(body) != 5000 {
			t.Errorf("read %d bytes of the body: %v, %v; want 5000", len(body), err, readerr)
		}
	})))
	t.Cleanup(front.Close)
	answer, err := http.Post(front.URL, "", strings.NewReader(strings.Repeat("x", 5000)))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
}
