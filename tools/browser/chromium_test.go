package browser_test

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// update writes the pictures of docs/ui.md.
var (
	update   = flag.Bool("update", false, "write the pictures of docs/ui.md")
	pictures = flag.String("pictures", "", "write a picture of each page, also in dark mode and on a small screen, to this directory")
)

// newBrowser starts Chromium; it ends with the test.
func newBrowser(t testing.TB) context.Context {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.WindowSize(1280, 900), chromedp.UserDataDir(t.TempDir()))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // the browser may have ended with its tabs
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// tab is one tab.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	messages []string // of the console that are errors
	dialogs  []string
}

// newTab opens a tab of a browser.
func newTab(t testing.TB, in context.Context) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(in)
	t.Cleanup(cancel)
	w := &tab{t: t, ctx: ctx}
	err := chromedp.Listen(ctx, func(event any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch e := event.(type) {
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.EntryLevelError {
				w.messages = append(w.messages, e.Entry.Text+" "+e.Entry.URL)
			}
		case *runtime.EventExceptionThrown:
			w.messages = append(w.messages, fmt.Sprint(e.ExceptionDetails.Text, " ", e.ExceptionDetails.URL))
		case *page.EventJavascriptDialogOpening:
			w.dialogs = append(w.dialogs, e.Message)
			go func() { // else the tab stands still
				_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
			}()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"clipboard-write", "clipboard-read"} {
		permission := browser.SetPermissionParams{Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted}
		if _, err := chromedp.CallBrowser(ctx, browser.SetPermission, permission); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	if err := chromedp.Do(w.ctx, actions...); err != nil {
		w.t.Fatal(err)
	}
}

// call sends a command of the DevTools protocol.
func call[P, R any](w *tab, command cdp.Command[P, R], params P) {
	w.t.Helper()
	if _, err := chromedp.Call(w.ctx, command, params); err != nil {
		w.t.Fatal(err)
	}
}

// eval returns the value of a script.
func eval[T any](w *tab, script string, options ...chromedp.EvaluateOption) T {
	w.t.Helper()
	v, err := chromedp.Run(w.ctx, chromedp.Evaluate[T](script, options...))
	if err != nil {
		w.t.Fatalf("%.200s: %v", script, err)
	}
	return v
}

// open goes to an address and waits until the page is there.
func (w *tab) open(address string) {
	w.t.Helper()
	w.run(chromedp.Navigate(address))
}

// enter opens the address of `jorc ui`, whose first page leads on to the start page.
func (w *tab) enter(address string) (base string) {
	w.t.Helper()
	w.open(address)
	w.shows("Needs attention")
	base, _, _ = strings.Cut(address, "/?")
	return base
}

// text is what the page shows.
func (w *tab) text() string {
	w.t.Helper()
	text, err := w.read()
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// read is text while the page may be left for another, which is an error.
func (w *tab) read() (string, error) {
	return chromedp.Run(w.ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText : ""`))
}

// shows waits until the page shows all texts.
func (w *tab) shows(texts ...string) {
	w.t.Helper()
	eventually(w.t, strings.Join(texts, ", "), func() error {
		all, err := w.read()
		if err != nil {
			return err
		}
		for _, text := range texts {
			if !strings.Contains(all, text) {
				return fmt.Errorf("the page lacks %q:\n%s", text, all)
			}
		}
		return nil
	})
}

// lacks waits until the page no longer shows a text.
func (w *tab) lacks(text string) {
	w.t.Helper()
	eventually(w.t, "the end of "+text, func() error {
		all, err := w.read()
		if err == nil && strings.Contains(all, text) {
			err = fmt.Errorf("the page still has %q:\n%s", text, all)
		}
		return err
	})
}

// live waits until the page follows the stream.
func (w *tab) live() {
	w.t.Helper()
	eventually(w.t, "the page is live", func() error {
		if !eval[bool](w, `document.querySelector("#live.live") !== null`) {
			return fmt.Errorf("it is not")
		}
		return nil
	})
}

// copies presses the button beside the page's command, and wants that on the clipboard.
func (w *tab) copies() {
	w.t.Helper()
	want := eval[string](w, `document.querySelector("p.same code").textContent`)
	w.run(chromedp.Click(chromedp.CSS("p.same button.copy")))
	eventually(w.t, "the command is copied", func() error {
		if got := eval[string](w, `navigator.clipboard.readText()`, chromedp.EvalAwaitPromise); got != want || !strings.HasPrefix(got, "jorc ") {
			return fmt.Errorf("the clipboard has %q, the page %q", got, want)
		}
		return nil
	})
}

// clean fails the test if a script ran that must not, or the console has errors,
// except the ones that contain a text of allowed.
func (w *tab) clean(allowed ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.messages {
		if !slices.ContainsFunc(allowed, func(part string) bool { return strings.Contains(m, part) }) {
			w.t.Errorf("the console has: %s", m)
		}
	}
	if len(w.dialogs) > 0 {
		w.t.Errorf("scripts ran: %q", w.dialogs)
	}
	w.messages = nil
}

//go:embed testdata/axe.min.js
var axe string

// accessible fails the test for serious findings of axe-core, in both colour schemes, and for a
// page that has to be scrolled sideways on a small screen.
func (w *tab) accessible(name string) {
	w.t.Helper()
	w.window(390, 800)
	if eval[bool](w, `document.documentElement.scrollWidth > innerWidth`) {
		w.t.Errorf("%s: a small screen has to be scrolled sideways", name)
	}
	w.keep(name + "-small")
	w.window(1280, 900)
	for _, scheme := range []string{"light", "dark"} {
		w.scheme(scheme)
		w.keep(name + "-" + scheme)
		eval[chromedp.Void](w, axe+";0")
		result := eval[string](w, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`, chromedp.EvalAwaitPromise)
		var violations []struct {
			ID, Impact, Help string
			Nodes            []struct {
				HTML           string
				FailureSummary string
			}
		}
		if err := json.Unmarshal([]byte(result), &violations); err != nil {
			w.t.Fatal(err)
		}
		for _, v := range violations {
			text := fmt.Sprintf("%s, %s: axe-core: %s %s: %s: %s %s", name, scheme, v.Impact, v.ID, v.Help, v.Nodes[0].HTML, v.Nodes[0].FailureSummary)
			if v.Impact == "serious" || v.Impact == "critical" {
				w.t.Error(text)
			} else {
				w.t.Log(text)
			}
		}
	}
	w.scheme("light")
}

func (w *tab) scheme(scheme string) {
	w.t.Helper()
	call(w, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// window sets the size of the page.
func (w *tab) window(width, height int64) {
	w.t.Helper()
	w.run(chromedp.EmulateViewport(width, height))
}

// picture writes the page as docs/ui/NAME.png with -update if docs/ui.md shows it. It has
// few colours, so that it is small.
func (w *tab) picture(name string) {
	w.t.Helper()
	if !*update {
		return
	}
	docs := filepath.Join("..", "..", "docs")
	text, err := os.ReadFile(filepath.Join(docs, "ui.md"))
	if err != nil {
		w.t.Fatal(err)
	}
	if !strings.Contains(string(text), "(ui/"+name+".png)") {
		return
	}
	data, err := chromedp.Run(w.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		w.t.Fatal(err)
	}
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		w.t.Fatal(err)
	}
	small := image.NewPaletted(full.Bounds(), colours(full))
	draw.Draw(small, small.Bounds(), full, image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		w.t.Fatal(err)
	}
	dir := filepath.Join(docs, "ui")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), out.Bytes(), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// keep writes a picture of the page if they are asked for.
func (w *tab) keep(name string) {
	w.t.Helper()
	if *pictures == "" {
		return
	}
	data, err := chromedp.Run(w.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(*pictures, name+".png"), data, 0o644)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// colours are the 256 most frequent ones of an image.
func colours(m image.Image) (p color.Palette) {
	counts := map[color.RGBA]int{}
	for y := m.Bounds().Min.Y; y < m.Bounds().Max.Y; y++ {
		for x := m.Bounds().Min.X; x < m.Bounds().Max.X; x++ {
			counts[color.RGBAModel.Convert(m.At(x, y)).(color.RGBA)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return counts[b] - counts[a] })
	for _, c := range all[:min(len(all), 256)] {
		p = append(p, c)
	}
	return p
}
