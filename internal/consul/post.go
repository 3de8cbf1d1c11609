package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/hashicorp/consul/api"
)

// post asks the one kind of endpoint for which the API has no call: those that
// answer to POST. Refusals are api.StatusErrors, as the API's own calls have them.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// refusal is an answer that is none.
func refusal(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("read the refusal: %w", err)
	}
	return api.StatusError{Code: resp.StatusCode, Body: string(text)}
}
