package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// chromium is a browser without a window, driven through a pipe by the DevTools
// protocol.
type chromium struct {
	proc   *process
	orders *os.File

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer // nil: the browser has ended
	reading sync.WaitGroup
}

// answer is the browser's to one order.
type answer struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startChromium starts the browser with a new profile.
func (b *bench) startChromium() (*chromium, error) {
	dir, err := b.place("chromium")
	if err != nil {
		return nil, err
	}
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirOrders.Close()
	answers, theirAnswers, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirAnswers.Close()
	argv := []string{b.programs.chromium, "--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--window-size=1280,900", "--user-data-dir=" + dir}
	argv = append(argv, "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding", "--disable-background-timer-throttling")
	if os.Getuid() == 0 {
		argv = append(argv, "--no-sandbox")
	}
	c := &chromium{orders: orders, waiting: map[int]chan answer{}}
	if c.proc, err = startWith(dir, "chromium", append(argv, "about:blank"), nil, theirOrders, theirAnswers); err != nil {
		return nil, err
	}
	c.reading.Go(func() { c.read(answers) })
	return c, nil
}

func (c *chromium) close() {
	_ = c.orders.Close() // the browser ends
	c.proc.kill()
	c.reading.Wait()
}

// read hands out answers until the browser ends.
func (c *chromium) read(answers *os.File) {
	defer answers.Close()
	in := bufio.NewReader(answers)
	for {
		data, err := in.ReadBytes(0)
		if err != nil {
			break
		}
		var a answer
		if json.Unmarshal(data[:len(data)-1], &a) != nil || a.ID == 0 {
			continue // an event
		}
		c.mu.Lock()
		to := c.waiting[a.ID]
		delete(c.waiting, a.ID)
		c.mu.Unlock()
		if to != nil {
			to <- a
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, to := range c.waiting {
		close(to)
	}
	c.waiting = nil
}

// order carries out a command of the protocol in a session; empty: in the browser.
func (c *chromium) order(ctx context.Context, session, method string, params, result any) error {
	to := make(chan answer, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return c.proc.died()
	}
	c.last++
	id := c.last
	c.waiting[id] = to
	order := map[string]any{"id": id, "method": method, "params": params}
	if session != "" {
		order["sessionId"] = session
	}
	data, err := json.Marshal(order)
	if err == nil {
		_, err = c.orders.Write(append(data, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("chromium: %s: %w", method, err)
	}
	select {
	case a, ok := <-to:
		switch {
		case !ok:
			return c.proc.died()
		case a.Error != nil:
			return fmt.Errorf("chromium: %s: %s", method, a.Error.Message)
		case result != nil:
			return json.Unmarshal(a.Result, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("chromium: %s: %w", method, context.Cause(ctx))
	}
}

// tab is one tab of the browser.
type tab struct {
	in      *chromium
	session string
}

// open opens an address in a window of its own: the other tabs of a window are hidden.
func (c *chromium) open(ctx context.Context, address string) (*tab, error) {
	var target struct {
		ID string `json:"targetId"`
	}
	if err := c.order(ctx, "", "Target.createTarget", map[string]any{"url": address, "newWindow": true}, &target); err != nil {
		return nil, err
	}
	var attached struct {
		ID string `json:"sessionId"`
	}
	err := c.order(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	return &tab{c, attached.ID}, err
}

// visit goes to an address.
func (t *tab) visit(ctx context.Context, address string) error {
	return t.in.order(ctx, t.session, "Page.navigate", map[string]any{"url": address}, nil)
}

// eval returns the value of a script; it waits for the one of a promise.
func (t *tab) eval(ctx context.Context, script string, result any) error {
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	params := map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true}
	if err := t.in.order(ctx, t.session, "Runtime.evaluate", params, &r); err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return fmt.Errorf("chromium: %.100s: %s", script, r.ExceptionDetails.Text)
	}
	if len(r.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(r.Result.Value, result)
}

// until returns when a script is true.
func (t *tab) until(ctx context.Context, script string) error {
	for {
		var ok bool
		if err := t.eval(ctx, script, &ok); err == nil && ok { // while the page changes there is no answer
			return nil
		}
		if sleep(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return t.showing(ctx, fmt.Errorf("chromium: %s: %w", script, context.Cause(ctx)))
		}
	}
}

// showing adds to err what the page shows.
func (t *tab) showing(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var text string
	_ = t.eval(ctx, `document.body.innerText.slice(0, 1000)`, &text) // for the error alone
	return fmt.Errorf("%w; the page shows:\n%s", err, text)
}

// live is true when a page follows the stream.
const live = `document.querySelector("#live.live") !== null`

// expect makes the page note when its document has a text for the first time.
func (t *tab) expect(ctx context.Context, text string) error {
	script := `(text => { window.seen = new Promise(done => {
  const look = () => { if (document.body.textContent.includes(text)) { observer.disconnect(); done(performance.timeOrigin + performance.now()); } };
  const observer = new MutationObserver(look);
  observer.observe(document.body, {subtree: true, childList: true, characterData: true});
  look();
}); return 0; })`
	return t.eval(ctx, script+"("+strconv.Quote(text)+")", new(int))
}

// seenWithin bounds how long a text is waited for.
const seenWithin = 20 * time.Second

// seen waits until the document has the text, and returns how long after begin that was.
func (t *tab) seen(ctx context.Context, begin time.Time) (time.Duration, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, seenWithin, fmt.Errorf("not seen within %s", seenWithin))
	defer cancel()
	var millis float64
	if err := t.eval(bounded, `window.seen`, &millis); err != nil {
		return 0, t.showing(ctx, err)
	}
	return time.Duration(millis*float64(time.Millisecond)) - time.Duration(begin.UnixNano()), nil
}
