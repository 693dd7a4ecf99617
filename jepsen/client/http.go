package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// answerMax bounds what an answer over HTTP may have.
const answerMax = 1 << 20

// HTTP does a request of the management API at the client's node. body is sent as JSON, nil for
// none; an answer is decoded into to, unless that is nil. The error tells that no answer came;
// a refusal is none.
func (c *Client) HTTP(ctx context.Context, method, path string, body, to any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.cfg.HTTP(c.Node)+path, content)
	if err != nil {
		return 0, err
	}
	req.SetBasicAuth(c.cfg.User, c.cfg.User)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerMax))
	if err == nil && to != nil && resp.StatusCode < http.StatusMultipleChoices {
		err = json.Unmarshal(text, to)
	}
	return resp.StatusCode, err
}
