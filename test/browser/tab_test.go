package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience bounds each step of a test.
const patience = 40 * time.Second

// tab is a tab of the browser that looks at the first node's page. What the page writes to the console fails the test.
type tab struct {
	t    testing.TB
	rig  *rig
	ctx  context.Context
	base string

	mu      sync.Mutex
	console []string
}

// open returns a tab of its own, with a session of its own.
func open(t testing.TB) *tab {
	t.Helper()
	r, err := start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(r.browser, chromedp.WithNewBrowserContext())
	p := &tab{t: t, rig: r, ctx: ctx, base: r.cluster.Node(0).HTTP()}
	if err := chromedp.Do(ctx); err != nil { // opens the tab, which ends with this context
		t.Fatal(err)
	}
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		p.listen()
	}()
	t.Cleanup(func() {
		if t.Failed() {
			p.picture("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
			t.Log("the page shows:\n" + p.text("body"))
		}
		cancel()
		<-listening
		if crashes := r.cluster.Crashes(); crashes != "" {
			t.Error(crashes)
		}
	})
	p.size(1360, 900)
	p.look("light")
	return p
}

// refused are lines that the browser itself writes for answers that a test asks for.
const refused = "the server responded with a status of"

// listen keeps what the page writes to the console until the tab is closed.
func (p *tab) listen() {
	for m, err := range chromedp.Console(p.ctx) {
		if err != nil {
			return
		}
		if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.Type == chromedp.ConsoleException {
			p.mu.Lock()
			p.console = append(p.console, fmt.Sprintf("%s %s %s", m.Type, m.Text, m.URL))
			p.mu.Unlock()
		}
	}
}

// silent fails the test if the console has anything but answers with the given statuses.
func (p *tab) silent(statuses ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.console {
		expected := false
		for _, s := range statuses {
			expected = expected || strings.Contains(line, refused+" "+s)
		}
		if !expected {
			p.t.Errorf("the console says: %s", line)
		}
	}
	p.console = nil
}

// do runs an action within patience.
func (p *tab) do(a chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, a); err != nil {
		p.t.Fatal(err)
	}
}

// run runs a script.
func (p *tab) run(script string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](script))
}

// eval returns what a script gives, which may be a promise.
func eval[T any](p *tab, script string) T {
	p.t.Helper()
	v, err := tryEval[T](p, script)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

func tryEval[T any](p *tab, script string) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// await waits until a script gives true. One that fails looks for what is not there yet, or at a page that is just being left.
func (p *tab) await(what, script string) {
	p.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		ok, err := tryEval[bool](p, "Boolean("+script+")")
		if err == nil && ok {
			return
		}
		if time.Now().After(until) {
			p.t.Fatalf("waited in vain for %s (%v)", what, err)
		}
	}
}

// shows waits until the page shows a text.
func (p *tab) shows(text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("the text %q", text), "document.body.innerText.includes("+quote(text)+")")
}

func quote(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// control is a script that finds a button, link or tab by what it is called, in the open dialog if there is one.
func control(name string) string {
	return `[...(document.querySelector("dialog[open]") ?? document).querySelectorAll("button,a,summary,input[type=checkbox]")].find((e) =>
		(e.getAttribute("aria-label") ?? e.innerText.trim()) === ` + quote(name) + ` && e.offsetParent !== null && !e.disabled)`
}

// click clicks what is called so.
func (p *tab) click(name string) {
	p.t.Helper()
	// Found and clicked by one script: between two of them the page may have drawn it anew.
	p.await("something to click called "+name, `(() => { const e = `+control(name)+`; e?.click(); return e; })()`)
}

// field is a script that finds a field by its label.
func field(label string) string {
	return `(() => { const d = document.querySelector("dialog[open]") ?? document;
		const l = [...d.querySelectorAll("label")].find((e) => e.innerText.trim().startsWith(` + quote(label) + `));
		return l ? d.querySelector("#" + CSS.escape(l.htmlFor)) ?? l.querySelector("input,select") : d.querySelector("[aria-label=" + ` + quote(quote(label)) + ` + "]"); })()`
}

// fill types into the field with a label.
func (p *tab) fill(label, text string) {
	p.t.Helper()
	p.await("a field labelled "+label, `(() => { const f = `+field(label)+`; if (!f) return false; const set = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(f), "value").set; set.call(f, `+quote(text)+`);
		f.dispatchEvent(new Event("input", { bubbles: true })); f.dispatchEvent(new Event("change", { bubbles: true })); return true; })()`)
}

func (p *tab) text(selector string) string {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector(`+quote(selector)+`)?.innerText ?? ""`))
	if err != nil {
		return err.Error()
	}
	return text
}

// visit goes to a page of the application.
func (p *tab) visit(hash string) {
	p.t.Helper()
	p.run("location.hash = " + quote(hash))
}

// login opens the list of queues and logs in.
func (p *tab) login(user, password string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.base + "/#/queues"))
	p.fill("User", user)
	p.fill("Password", password)
	p.click("Log in")
}

// look sets what the system prefers, light or dark.
func (p *tab) look(scheme string) {
	p.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		p.t.Fatal(err)
	}
}

// size sets the size of the screen.
func (p *tab) size(width, height int64) {
	p.t.Helper()
	screen := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, screen); err != nil {
		p.t.Fatal(err)
	}
}

// picture keeps a screenshot.
func (p *tab) picture(name string) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Errorf("picture %s: %v", name, err)
		return
	}
	if err := os.WriteFile(filepath.Join(pictures, name+".png"), png, 0o644); err != nil {
		p.t.Error(err)
	}
}

// looks takes pictures in light and dark, of a desktop and a phone, and has each checked for accessibility.
func (p *tab) looks(name string) {
	p.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.look(scheme)
		p.await("the colours", "document.documentElement.dataset.theme === "+quote(scheme))
		p.picture(name + "-" + scheme)
		p.accessible(name + ", " + scheme)
	}
	p.look("light")
	p.size(390, 844)
	p.await(name+" to be no wider than a phone", "document.documentElement.scrollWidth <= innerWidth + 1")
	p.picture(name + "-phone")
	p.size(1360, 900)
}
