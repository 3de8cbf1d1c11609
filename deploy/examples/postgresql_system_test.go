//go:build system

package examples_test

import "testing"

// TestPostgreSQLWithAStandby follows deploy/examples/postgresql: a primary that dies, and one
// that is moved.
func TestPostgreSQLWithAStandby(t *testing.T) {
	f := newFleet(t, []string{"db-1", "db-2", "app-1"}, "pg_createcluster", "pg_basebackup", "runuser")
	if f == nil {
		return
	}
	const check, write = "postgres-role check", "runuser -u postgres -- psql -c 'insert into orders values "
	one, two := f.hosts["db-1"], f.hosts["db-2"]
	for _, h := range []*host{one, two} { // as Debian's package makes it
		h.must("rm -rf /etc/postgresql /var/lib/postgresql/* /var/log/postgresql/*; pg_createcluster $(ls /usr/lib/postgresql | sort -V | tail -1) main")
	}
	f.follow("postgresql") // db-1 is the primary again
	two.eventually("the primary before to follow", check, "standby\n")
	f.hosts["app-1"].eventually("the application to follow", "cat /etc/app/database.env", "DATABASE_HOST="+one.ip+"\n")

	// A primary without Consul ends, and follows when it returns.
	one.must("ip link set eth0 down")
	one.eventually("a primary without Consul to end", "! pg_ctlcluster $(pg_lsclusters -h | cut -d' ' -f1) main status", "no server running")
	two.eventually("the standby to be promoted", check, "primary\n")
	two.must(write + "(3)'")
	one.must("ip link set eth0 up")
	one.eventually("the primary before to follow", check, "standby\n")
	one.eventually("all rows", "runuser -u postgres -- psql -Atc 'select string_agg(id::text, $$,$$ order by id) from orders'", "1,2,3\n")

	// A copy that does not belong to the last line of history is not promoted.
	one.eventually("the standby to be registered", "jorc service resolve postgres --tag standby", one.ip)
	one.must("jorc cluster profile set postgres/line another")
	one.must("jorc cluster profile set cluster/leader-eligible false --node db-2")
	one.eventually("an old copy to be refused", "jorc workflow jobs", "no copy of the line of history another")
	one.eventually("the old copy to stay a standby", check+" || true", "a standby without its primary\n")
}
