//go:build system

package examples_test

import (
	"strings"
	"testing"
)

// TestRollingPuppet follows deploy/examples/puppet; then a manifest that Puppet applies breaks
// the service.
func TestRollingPuppet(t *testing.T) {
	f := newFleet(t, []string{"web-1", "web-2", "web-3"}, "nginx", "git", "puppet")
	if f == nil {
		return
	}
	for _, h := range f.hosts {
		h.must("rm -rf /etc/puppet/* /var/lib/puppet/*")
	}
	f.follow("puppet")
	web := f.hosts["web-1"]
	web.must("sed -i '/health/,/return/ s/200/500/' ~/site/site.conf; git -C ~/site commit -q -a -m sick; git -C ~/site tag v4; git -C ~/site push -q origin v4")
	web.must("jorc update trigger v4 --canary 1 --max-parallel 1 --min-healthy 3s")
	web.must("! jorc update wait --timeout 1h")
	sick := 0
	for _, h := range f.hosts {
		switch code := h.must("curl -s -o /dev/null -w '%{http_code}' http://localhost/health"); code {
		case "500":
			sick++
		case "200":
		default:
			t.Errorf("%s answers %s", h.name, code)
		}
	}
	if sick != 1 {
		t.Errorf("%d hosts are sick, want the canary alone", sick)
	}
	if show := web.must("jorc update show"); !strings.Contains(show, "critical") {
		t.Errorf("the reason is not shown:\n%s", show)
	}
}
