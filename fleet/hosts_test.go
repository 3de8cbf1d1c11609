//go:build fleet || soak

package fleet_test

import (
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// The hosts of the usual fleet: three that serve, one in front of them, one
// that does neither.
const (
	webConfig = `
member {
  roles        = ["web"]
  zone         = "$ZONE"
  on_lead      = "lead"
  on_step_down = "step-down"
}
service "web" {
  port = 8080
  tags = ["http"]
  check {
    http     = "http://$IP:8080/health"
    interval = "1s"
    timeout  = "2s"
  }
}
` + leadConfig + fileConfig
	edgeConfig = `
member {
  roles        = ["edge"]
  zone         = "$ZONE"
  on_lead      = "lead"
  on_step_down = "step-down"
}
template "backends" {
  source      = "$TEMPLATES/haproxy-backends.ctmpl"
  destination = "$DIR/backends.cfg"
  check       = ["haproxy", "-c", "-q", "-f", "$DIR/haproxy.cfg", "-f", "{{.Staged}}"]
  reload      = ["/bin/sh", "$DIR/reload.sh"]
}
` + leadConfig + fileConfig
	dbConfig = `
member {
  roles        = ["db"]
  zone         = "$ZONE"
  on_lead      = "lead"
  on_step_down = "step-down"
}
` + leadConfig + fileConfig

	// leadConfig notes when a host begins to lead and when it ceases to.
	leadConfig = `
workflow "lead" {
  task "note" {
    command    = ["/bin/sh", "-c", "echo granted $(date +%s%N) >> $DIR/leading"]
    idempotent = true
  }
}
workflow "step-down" {
  task "note" {
    command    = ["/bin/sh", "-c", "echo released $(date +%s%N) >> $DIR/leading"]
    idempotent = true
  }
}
`
	// fileConfig is a file on every host that follows Consul.
	fileConfig = `
template "file" {
  contents    = "value {{ key \"jorc/default/test/value\" }}\nweb{{ range service \"web\" }} {{ .Node }}{{ end }}\n"
  destination = "$DIR/file"
}
`
	haproxyConfig = `global
    maxconn 1000
defaults
    mode http
    retries 0
    timeout connect 2s
    timeout client 5s
    timeout server 5s
    timeout http-keep-alive 2s
frontend all
    bind $IP:80
    default_backend web
`
	// reloadScript signals haproxy, and no other process that took its number.
	// It ends when a new worker is there: haproxy can lose a signal that comes
	// while it reloads.
	reloadScript = `
p=$(cat $DIR/haproxy.pid) && [ /proc/$p/ns/net -ef /proc/self/ns/net ] || exit 1
old=" $(cat /proc/$p/task/$p/children) "
kill -USR2 $p || exit 1
for i in $(seq 400); do
	for worker in $(cat /proc/$p/task/$p/children); do
		case "$old" in *" $worker "*) ;; *) exit 0 ;; esac
	done
	sleep 0.05
done
echo "haproxy has no new worker" >&2
exit 1
`
)

const (
	haproxyCommand = `rm -f $DIR/haproxy.pid; exec haproxy -W -db -p $DIR/haproxy.pid -f $DIR/haproxy.cfg -f $DIR/backends.cfg`
	front          = "http://10.111.0.14/" // edge-1
)

// usual starts the usual fleet. web is added to the configuration of the hosts
// that serve, others to that of all others; files are names and contents of files
// that all hosts have.
func usual(t *testing.T, web, others string, files ...string) *fleettest.Fleet {
	t.Helper()
	return fleettest.New(t, fleettest.Options{
		Hosts: []fleettest.HostSpec{
			{Name: "web-1", Config: in("a", webConfig+web)},
			{Name: "web-2", Config: in("b", webConfig+web), Orchestrator: true},
			{Name: "web-3", Config: in("a", webConfig+web)},
			{Name: "edge-1", Config: in("b", edgeConfig+others), Orchestrator: true},
			{Name: "db-1", Config: in("a", dbConfig+others), Orchestrator: true},
		},
		Before: func(f *fleettest.Fleet) {
			f.Put("test/value", "first")
			for _, h := range f.Hosts {
				for i := 0; i+1 < len(files); i += 2 {
					h.Write(files[i], files[i+1])
				}
			}
			for _, h := range webs(f) {
				h.Run("web", "$SELF", "role:web", "$IP:8080", "$NAME", "$DIR/version", "$DIR/web.pid")
			}
			edge := f.Host("edge-1")
			edge.Write("haproxy.cfg", haproxyConfig)
			edge.Write("backends.cfg", "backend web\n")
			edge.Write("reload.sh", reloadScript)
			edge.Run("haproxy", "/bin/sh", "-c", haproxyCommand)
		},
	})
}

// in is the configuration of a host in a zone.
func in(zone, config string) string { return strings.ReplaceAll(config, "$ZONE", zone) }

func webs(f *fleettest.Fleet) []*fleettest.Host {
	return []*fleettest.Host{f.Host("web-1"), f.Host("web-2"), f.Host("web-3")}
}
