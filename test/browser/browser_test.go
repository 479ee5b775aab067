// Package browser tries the page of `drover serve` in a real browser: `make browser`.
package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

var program, chromium string

func TestMain(m *testing.M) {
	if os.Getenv("BROWSER") == "" {
		fmt.Println("not tried: make browser tries the page in Chromium")
		os.Exit(0)
	}
	var err error
	if chromium, err = exec.LookPath("chromium"); err != nil {
		fmt.Fprintln(os.Stderr, "the tests need Chromium: apt-get install chromium")
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "browser")
	if err == nil {
		program = filepath.Join(dir, "drover")
		err = harness.Build(program)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// site is a place with a server of the page.
type site struct {
	*harness.Place
	link, address string
}

// serves starts the server in a new place.
func serves(t *testing.T, args ...string) *site {
	t.Helper()
	p := harness.New(t, program)
	t.Cleanup(func() { p.End(harness.Patience) })
	s := &site{Place: p}
	cmd := exec.Command(p.Bin, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = p.Dir, p.Env, os.Stderr
	out, err := cmd.StdoutPipe()
	p.Must(err)
	p.Must(cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && harness.ExitCode(cmd.ProcessState) != 128+int(syscall.SIGTERM) {
			t.Errorf("drover serve: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("drover serve printed nothing")
	}
	s.link = lines.Text()
	s.address, _, _ = strings.Cut(s.link, "/#")
	return s
}

// tab is a tab of a browser of its own.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func opens(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(harness.Patience), chromedp.Flag("force-prefers-reduced-motion", true)) // no click on what still scrolls
	all, done := chromedp.NewExecAllocator(waittest.Context(t, 2*harness.Patience), options...)
	t.Cleanup(done)
	// Newer browsers send events that the library does not know; it says so and goes on.
	ctx, closes := chromedp.NewContext(all, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(closes)
	return &tab{t, ctx}
}

// does runs actions, each of which waits until it can be done.
func (b *tab) does(what string, actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		var said, text string
		_ = chromedp.Run(b.ctx, chromedp.Text("#said", &said, chromedp.ByQuery), chromedp.Text("body", &text, chromedp.ByQuery))
		b.t.Fatalf("%s: %v\nsaid: %s\n%s", what, err, said, text)
	}
}

// until waits until an expression holds in the page, also over the load of another page.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	holds := false
	if !waittest.Until(harness.Patience, func() bool {
		err := chromedp.Run(b.ctx, chromedp.Evaluate("Boolean("+expression+")", &holds))
		return err == nil && holds // an error: the page is being loaded, or lacks what is asked for
	}) {
		b.does(what+" does not come", chromedp.Evaluate("Boolean("+expression+")", &holds))
		b.does(what, chromedp.ActionFunc(func(context.Context) error { return errors.New("it does not come") }))
	}
}

// presses presses a button once the list has stood still for long enough to be answered.
func (b *tab) presses(selector string) {
	b.t.Helper()
	b.until("the list stands still", "performance.now() - shifted > settle")
	b.does("press "+selector, chromedp.Click(selector, chromedp.ByQuery))
}

// script writes what the model answers.
func (s *site) script(commands ...string) string {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, `{"tools": [{"name": "Bash", "input": {"command": %q}}]},`, c)
	}
	return "script:" + s.File("script.json", `{"version": 1, "agents": {"main": [`+b.String()+`{"text": "done"}]}}`, 0o600)
}

// question is the ID of the only open one.
func (s *site) question() string {
	s.Helper()
	var all []struct {
		ID string `json:"id"`
	}
	s.Until("a question is open", func() bool {
		s.Read(&all, "approvals", "--json")
		return len(all) == 1
	})
	return all[0].ID
}

func (s *site) there(name string) bool {
	_, err := os.Stat(filepath.Join(s.Dir, name))
	return err == nil
}

const card = "#needs article[data-digest]"

// TestAnswers answers questions on the page and in the shell: each counts once, and who is late
// is told who was first.
func TestAnswers(t *testing.T) {
	s := serves(t)
	b := opens(t)
	session := s.Good("-p", "-d", "--ask-timeout", "5m", "--model", s.script("touch first", "touch second", "touch third"), "go")
	b.does("open the link", chromedp.Navigate(s.link))

	// The page is first.
	b.does("the question", chromedp.WaitVisible(card, chromedp.ByQuery))
	b.until("the whole call", `document.querySelector(".call").textContent.includes("command: touch first")`)
	b.until("the address has no code", `!location.href.includes("pair")`)
	q := s.question()
	b.presses(card + " .allow")
	b.until("the next question", `document.querySelector(".call")?.textContent.includes("touch second")`)
	if late := s.Run("approvals", "deny", q); late.Code() != 3 || !strings.Contains(late.Stderr(), "answered") || !s.there("first") {
		t.Errorf("the shell is late: %s", late)
	}

	// The shell is first, and the page does not know it yet.
	q = s.question()
	b.until("the list stands still", "performance.now() - shifted > settle")
	b.does("cut the stream", chromedp.Evaluate("stream.close()", nil))
	s.Good("approvals", "deny", q)
	b.does("answer late", chromedp.Click(card+" .allow", chromedp.ByQuery))
	b.until("who was first", `/answered already: denied by user/.test(document.getElementById("said").textContent)`)
	s.question()
	if s.there("second") {
		t.Error("what was denied has run")
	}

	// Both at once: one of them wins.
	b.does("load the page again", chromedp.Reload())
	b.until("the third question", `document.querySelector(".call")?.textContent.includes("touch third")`)
	q = s.question()
	b.until("the list stands still", "performance.now() - shifted > settle")
	shell := s.Start("approvals", "deny", q)
	b.does("answer", chromedp.Click(card+" .allow", chromedp.ByQuery))
	s.Must(shell.Wait())
	s.Good("wait", session)
	if won := shell.Code() == 0; won == s.there("third") {
		t.Errorf("the shell has won: %t, and the call has run: %t", won, s.there("third"))
	}
	b.until("nothing needs the user", `!document.getElementById("nothing").hidden`)
}

// awaited waits for what an expression promises.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
