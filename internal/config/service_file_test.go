package config_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jorc/jorc/internal/config"
)

func TestParseServiceFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		file string
		want []config.Service
	}{
		{"web.json", []config.Service{{
			ID: "web-1", Name: "web", Tags: []string{"http"}, Port: 80, Address: "10.0.0.1",
			Meta:              map[string]string{"version": "1"},
			TaggedAddresses:   map[string]config.Address{"lan": {Host: "10.0.0.1", Port: 81}, "wan": {Host: "192.0.2.1", Port: 80}},
			EnableTagOverride: true,
			Weights:           &config.Weights{Passing: 5, Warning: 1},
			Checks: []config.Check{
				{ID: "service:web-1:1", Shell: "curl -s localhost | grep ok", Interval: 10 * time.Second, Timeout: 30 * time.Second, Notes: "by hand"},
				{ID: "args", Script: []string{"/bin/true", "-x"}, Interval: 10 * time.Second, Timeout: 2 * time.Second},
				{ID: "service:web-1:3", TTL: 30 * time.Second, Status: "passing"},
				{
					ID: "service:web-1:4", HTTP: "http://localhost/", TLSSkipVerify: true, Interval: 5 * time.Second, Timeout: 10 * time.Second,
					DeregisterCriticalServiceAfter: time.Minute,
				},
				{ID: "service:web-1:5", GRPC: "localhost:50051", GRPCTLS: true, Interval: 5 * time.Second, Timeout: 10 * time.Second, SuccessBeforePassing: 3},
			},
		}}},
		{"many.hcl", []config.Service{
			{
				ID: "jorc-style", Name: "jorc-style", Port: 1, TaggedAddresses: map[string]config.Address{"eth0": {Host: "10.0.0.5", Port: 1}},
			},
			{
				ID: "red0", Name: "redis", Port: 6000, Tags: []string{"primary"}, Meta: map[string]string{"zone": "a"},
				TaggedAddresses: map[string]config.Address{"lan": {Host: "10.0.0.1", Port: 6000}},
				Checks: []config.Check{
					{ID: "service:red0", Script: []string{"/bin/check_redis", "-p", "6000"}, Interval: 5 * time.Second, Timeout: 30 * time.Second},
				},
			},
			{
				ID: "red1", Name: "redis", Weights: &config.Weights{Passing: 1},
				Checks: []config.Check{{ID: "service:red1", TCP: "localhost:7000", Interval: 5 * time.Second, Timeout: 10 * time.Second}},
			},
		}},
		{"bare.json", []config.Service{{
			ID: "bare", Name: "bare", Port: 8080, Checks: []config.Check{{ID: "service:bare", TTL: 10 * time.Second}},
		}}},
	} {
		got, err := config.ParseServiceFile(testdata + "services/" + tt.file)
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}
		byID := cmpopts.SortSlices(func(a, b config.Service) bool { return a.ID < b.ID })
		if diff := cmp.Diff(tt.want, got, byID, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.file, diff)
		}
	}
}
