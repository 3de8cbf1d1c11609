package command

import (
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"
)

func TestEnviron(t *testing.T) {
	for _, name := range secrets {
		t.Setenv(name, "hidden")
	}
	t.Setenv("JORC_TEST_KEPT", "kept")
	got := Environ("JORC_TEST_KEPT=changed", "CONSUL_HTTP_TOKEN=asked-for")
	for _, kv := range got {
		if strings.HasSuffix(kv, "=hidden") {
			t.Errorf("got %s, want it left out", kv)
		}
	}
	for _, want := range []string{"JORC_TEST_KEPT=changed", "CONSUL_HTTP_TOKEN=asked-for", "PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(got, want) {
			t.Errorf("got no %s", want)
		}
	}

	res, err := Run(t.Context(), Command{Args: []string{"env"}, MaxOutput: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(res.Output, "hidden") {
		t.Errorf("a command saw a secret: %s", res.Output)
	}
	if !strings.Contains(res.Output, "JORC_TEST_KEPT=kept\n") {
		t.Errorf("got %s, want JORC_TEST_KEPT in it", res.Output)
	}
}

func TestOwnUser(t *testing.T) {
	t.Parallel()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{me.Username, me.Uid} {
		res, err := Run(t.Context(), Command{Args: []string{"sh", "-c", "id -u; echo $HOME $USER"}, User: name})
		if err != nil {
			t.Fatal(err)
		}
		if want := me.Uid + "\n" + me.HomeDir + " " + me.Username + "\n"; res.Output != want {
			t.Errorf("user %s: got %q, want %q", name, res.Output, want)
		}
	}
}
