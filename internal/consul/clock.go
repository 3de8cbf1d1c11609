package consul

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/consul/api"
)

// Date asks for the time of the agent's clock, in whole seconds.
func (c *Client) Date(ctx context.Context) (time.Time, error) {
	v, _, err := read(ctx, c, "ask for the time", "", Query{}, func(o *api.QueryOptions) (time.Time, *api.QueryMeta, error) {
		req, err := http.NewRequestWithContext(o.Context(), http.MethodGet, c.base+"/v1/status/leader", http.NoBody)
		if err != nil {
			return time.Time{}, nil, err
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return time.Time{}, nil, err
		}
		defer resp.Body.Close()
		date, err := http.ParseTime(resp.Header.Get("Date"))
		if err != nil {
			return time.Time{}, nil, fmt.Errorf("the answer's date: %w", err)
		}
		return date, nil, nil
	})
	return v, err
}
