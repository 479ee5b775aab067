package tui

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// world is the sessions of all projects.
type world struct {
	mu    sync.Mutex
	items []control.AttentionItem
	other *session // of another project
	fail  error    // of marking as seen
}

func (w *world) gone(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.items = slices.DeleteFunc(slices.Clone(w.items), func(i control.AttentionItem) bool { return i.ID == id })
}

func (w *world) options(o *Options) {
	o.Everywhere = Everywhere{
		Attention: func(context.Context) (Waiting, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return Waiting{control.Attention{Items: w.items},
				map[task.ID]control.Info{"s2": {Session: "s2", Project: "/home/ann/site", Title: "New colours"}}}, nil
		},
		Follow: func(ctx context.Context, _ time.Duration, _ func()) { <-ctx.Done() },
		Reach: func(_ context.Context, id task.ID) (Connection, error) {
			w.other.did("reach %s", id)
			return Connection{API: w.other, Release: func() {}}, nil
		},
		MarkSeen: func(_ context.Context, id task.ID, refs []string) error {
			w.other.did("seen %s %s", id, refs)
			return w.fail
		},
	}
}

func newWorld() *world {
	at := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	q := task.Question{ID: "q7", Agent: "main", Tool: "Bash", Digest: "d7", Input: json.RawMessage(`{"command":"make deploy"}`), At: at}
	return &world{other: &session{}, items: []control.AttentionItem{
		{ID: "q7", Kind: "question", Session: "s2", What: "New colours", Why: "permission for Bash: no rule allows it", Since: at, Blocks: 2, Request: &q},
		{ID: "r1", Kind: "plan", Session: "s2", Task: "r1", Name: "far", What: "Plan the move", Why: "its plan is ready", Since: at, Blocks: 1,
			Answer: []string{"drover attach r1", "drover send r1 TEXT"}},
		{ID: "b7", Kind: "stalled", Session: "s2", Task: "b7", What: "npm init", Why: "package name: (site)", Since: at, Blocks: 1,
			Answer: []string{"drover send b7 TEXT", "drover stop b7"}},
		{ID: "b8", Kind: "stalled", Session: "s2", Task: "b8", What: "rm -i x", Why: "remove x?", Since: at, Blocks: 1, Answer: []string{"drover stop b8"}},
		{ID: "b9", Kind: "failure", Session: "s2", Task: "b9", Name: "tests", What: "go test ./...", Why: "failed (exit code 1)", Since: at,
			Answer: []string{"drover attention seen b9"}},
	}}
}

func (w *world) did(t *testing.T, want string) {
	t.Helper()
	if got := w.other.done(); got != want {
		t.Fatalf("the other session was asked\n%s\nwant\n%s", got, want)
	}
}

// The inbox has what needs the user in all sessions, each with one action: questions are
// answered where they stand, tasks that wait get a text, failures are seen.
func TestInbox(t *testing.T) {
	w := newWorld()
	u := start(t, 100, 30, w.options)
	u.sees("5 things need you in other sessions: /inbox", "✉ 5 in other sessions · alt+i")
	u.types("/inbox")
	u.press("enter")
	u.sees("Inbox · 5 need you", "▸ ? asks", "permission for Bash", "/home/ann/site · New colours · session s2", "enter answers")
	u.press("enter")
	u.sees("Allow command", "command: make deploy", "❯ 1. Allow once")
	u.press("enter")
	w.gone("q7")
	w.did(t, "reach s2\ndecide q7 d7 allow=true always=\"\" reason=\"\" text=\"\"")
	u.tell(effect(u.m.readWaiting))
	u.sees("Inbox · 4 need you", "▸ ◆ plan")

	u.press("down", "enter")
	u.types("my-site")
	u.sees("> my-site", "enter sends it to the task")
	u.press("enter")
	w.did(t, "reach s2\nsend b7 my-site")
	w.gone("b7")
	u.tell(effect(u.m.readWaiting))

	u.sees("▸ ‖ stalled rm -i x")
	u.press("enter")
	u.sees("nothing can be typed to it: x stops it")
	u.press("x")
	u.sees("press x again")
	u.press("x")
	w.did(t, "reach s2\nstop b8")
	w.gone("b8")
	u.tell(effect(u.m.readWaiting))

	w.fail = errors.New("the disk is full")
	u.press("enter")
	u.sees("not seen: the disk is full", "✗ failed")
	w.fail = nil
	u.press("enter")
	w.gone("b9")
	w.did(t, "seen s2 [b9]\nseen s2 [b9]")
	u.tell(effect(u.m.readWaiting))
	u.misses("✗ failed")
	u.press("esc")
	u.sees("✉ 1 in other sessions")
}

// What is done elsewhere is gone from the inbox, also while it is being answered.
func TestInboxDoneElsewhere(t *testing.T) {
	w := newWorld()
	u := start(t, 100, 30, w.options)
	u.press("alt+i", "enter")
	u.sees("command: make deploy")
	w.gone("q7")
	u.tell(effect(u.m.readWaiting))
	u.misses("make deploy")
	u.sees("answered elsewhere", "Inbox · 4 need you")
	u.press("down", "enter")
	u.types("my")
	w.gone("b7")
	u.tell(effect(u.m.readWaiting))
	u.misses("> my")
	u.sees("that was done elsewhere")
	w.did(t, "")
}

// The questions of this conversation wait while the inbox is open, and come back behind it.
func TestInboxOwnQuestion(t *testing.T) {
	w := newWorld()
	u := start(t, 100, 30, w.options)
	u.press("alt+i")
	u.ask(choiceQuestion())
	u.sees("Inbox · 5 need you")
	u.press("esc")
	u.sees("Which colour?")
}

// What has come up elsewhere is looked for when the window gets the focus.
func TestInboxFocus(t *testing.T) {
	w := &world{other: &session{}}
	u := start(t, 100, 30, w.options)
	u.misses("elsewhere")
	u.tell(tea.BlurMsg{})
	w.items = newWorld().items
	u.tell(tea.FocusMsg{})
	u.sees("✉ 5 in other sessions")
}
