package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// passing are the addresses of the healthy instances of a service. With an
// index it waits for something to happen.
func passing(ctx context.Context, api, service string, index uint64) (addresses []string, next uint64, err error) {
	url := fmt.Sprintf("%s/v1/health/service/%s?passing&index=%d&wait=60s", api, service, index)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("%s: %s", url, answer.Status)
	}
	var entries []struct {
		Service struct {
			Address string
			Port    int
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&entries); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", url, err)
	}
	for _, e := range entries {
		addresses = append(addresses, net.JoinHostPort(e.Service.Address, strconv.Itoa(e.Service.Port)))
	}
	next, err = strconv.ParseUint(answer.Header.Get("X-Consul-Index"), 10, 64)
	return addresses, next, err
}

// healthy returns when Consul has first known n instances of web to be healthy.
func healthy(ctx context.Context, api string, n int) (time.Time, error) {
	var index uint64
	for {
		addresses, next, err := passing(ctx, api, "web", index)
		if err != nil {
			return time.Time{}, fmt.Errorf("%d healthy instances of web: %w", n, err)
		}
		if len(addresses) == n {
			return time.Now(), nil
		}
		index = next
	}
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(io.LimitReader(answer.Body, 1<<20))
}
