package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/racetest"
	"github.com/drover-dev/drover/test/waittest"
	"github.com/drover-dev/drover/test/webtest"
)

const patience = 30 * time.Second

// floods is a server that follows one session, and its address.
func floods(t *testing.T, f *webtest.Flood) (*Server, string) {
	t.Helper()
	s, url := page(t)
	s.board.c.Sessions = func(_ context.Context, live bool) ([]Session, error) {
		if live {
			return []Session{webtest.Session{Flood: f}}, nil
		}
		return nil, nil
	}
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(group.Wait)
	t.Cleanup(cancel)
	group.Go(func() { s.board.run(ctx) })
	if !waittest.Until(patience, func() bool {
		tree, _ := s.board.all(treeList)
		return len(tree) == len(f.Tasks)+1
	}) {
		t.Fatal("the tasks are not on the board")
	}
	return s, url
}

// reader is an open page.
type reader struct {
	lines *bufio.Scanner
	close func()
	last  string // ID
}

func reads(t testing.TB, s *Server, url, after string) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	return &reader{lines: lines, close: func() { cancel(); _ = resp.Body.Close() }}
}

// next is the next change; false: the stream has ended.
func (r *reader) next() (c change, ok bool) {
	for r.lines.Scan() {
		l := r.lines.Text()
		if id, is := strings.CutPrefix(l, "id: "); is {
			r.last = id
		}
		if data, is := strings.CutPrefix(l, "data: "); is {
			return c, json.Unmarshal([]byte(data), &c) == nil
		}
	}
	return c, false
}

// TestCutLink goes on with what has changed since the last change that a page has; a page of another
// server begins anew.
func TestCutLink(t *testing.T) {
	f := webtest.New(2000, task.LocalBash)
	s, url := floods(t, f)
	r := reads(t, s, url, "")
	c, ok := r.next()
	if !ok || !c.Reset || len(c.Set) < len(f.Tasks)+1 {
		t.Fatalf("begins with %d pieces, %t", len(c.Set), c.Reset)
	}
	if !slices.IsSortedFunc(c.Set, func(a, b *piece) int { return strings.Compare(a.Key, b.Key) }) {
		t.Error("the pieces are not in order")
	}
	last := r.last
	r.close()
	changed := f.Tasks[7]
	changed.Paused = true
	f.Change(changed)
	r = reads(t, s, url, last)
	defer func() { r.close() }()
	if c, ok = r.next(); !ok || c.Reset || len(c.Set) != 1 || !strings.Contains(c.Set[0].HTML, "paused") {
		t.Fatalf("goes on with %+v", c)
	}
	r.close()
	r = reads(t, s, url, "other.7")
	if c, ok = r.next(); !ok || !c.Reset || len(c.Set) < len(f.Tasks) {
		t.Errorf("another server's page: %d pieces, %t", len(c.Set), c.Reset)
	}
}

// TestLeft shows what ended sessions left beside what live ones need, of which most need nothing.
func TestLeft(t *testing.T) {
	s, _ := page(t)
	b := s.board
	item := func(session, id string) control.Attention {
		return control.Attention{Items: []control.AttentionItem{{ID: id, Kind: "failure", Session: task.ID(session), Task: task.ID(id)}}}
	}
	b.left = []control.Attention{item("old", "b1"), item("back", "b2")}
	for _, id := range []string{"back", "m2", "m3", "m4"} { // whose order is any
		b.sessions[task.ID(id)] = &followed{}
	}
	b.sessions["m4"].attention = item("m4", "b4")
	b.needs = true
	b.drawn()
	var got []string
	shown, _ := b.all(needsList)
	for _, p := range shown {
		got = append(got, p.ID)
	}
	if want := []string{"n-old-b1--failure", "n-m4-b4--failure"}; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("it shows %q, not %q", got, want)
	}
}

// lateList is a session whose list is older than an event that comes meanwhile.
type lateList struct {
	control.API
	meanwhile func()
	tasks     []task.Record
}

func (l lateList) List(context.Context, control.ListRequest) (control.Page, error) {
	l.meanwhile()
	return control.Page{Tasks: l.tasks}, nil
}

// TestLateList keeps what an event has told when an older list comes behind it.
func TestLateList(t *testing.T) {
	s, _ := page(t)
	b := s.board
	f := b.add(webtest.Session{Flood: webtest.New(0, task.LocalBash)})
	one := task.Record{ID: "b1", Session: "m1", Kind: task.LocalBash, Status: task.Running}
	two := task.Record{ID: "b2", Session: "m1", Kind: task.LocalBash, Status: task.Running, OutputBytes: 7}
	over := one
	over.Status = task.Completed
	b.happened(f, one)
	late := lateList{tasks: []task.Record{one, two}, meanwhile: func() { b.happened(f, over) }}
	if err := b.list(t.Context(), f, late, false); err != nil {
		t.Fatal(err)
	}
	if f.tasks["b1"].Status != task.Completed || f.tasks["b2"].OutputBytes != 7 {
		t.Errorf("the board has %+v", f.tasks)
	}
}

// TestFlood has 2,000 tasks change without pause: what is sent is bounded by the pace of the page, and
// memory by what is shown.
func TestFlood(t *testing.T) {
	f := webtest.New(2000, task.LocalBash)
	s, url := floods(t, f)
	r := reads(t, s, url, "")
	defer r.close()
	if _, ok := r.next(); !ok {
		t.Fatal("no beginning")
	}
	const rounds = 20
	for round := range rounds {
		for _, rec := range f.Tasks {
			rec.Progress = &task.Progress{TokenCount: int64(round + 1)}
			f.Change(rec)
		}
	}
	frames, last := 0, map[string]string{}
	for done := false; !done; frames++ {
		c, ok := r.next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		for _, p := range c.Set {
			last[p.ID] = p.HTML
		}
		done = len(last) == len(f.Tasks) && !slices.ContainsFunc(f.Tasks, func(r task.Record) bool {
			return !strings.Contains(last[pieceID(r.Session, r.ID)], fmt.Sprintf(`<td class="n">%d</td>`, rounds))
		})
	}
	t.Logf("%d changes came as %d messages", rounds*len(f.Tasks), frames)
	if frames > rounds*len(f.Tasks)/20 {
		t.Errorf("%d changes came as %d messages", rounds*len(f.Tasks), frames)
	}
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	if n := len(s.board.parts); n > mostParts {
		t.Errorf("%d messages are kept", n)
	}
}

// TestPages opens 200 pages: what they cost the server, and how late changes come.
func TestPages(t *testing.T) {
	const pages = 200
	f := webtest.New(100, task.LocalBash)
	s, url := floods(t, f)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := heap()
	got := make(chan time.Time, pages)
	for range pages {
		r := reads(t, s, url, "")
		defer r.close()
		if _, ok := r.next(); !ok {
			t.Fatal("no beginning")
		}
		go func() { // ends with the stream
			for {
				if _, ok := r.next(); !ok {
					return
				}
				got <- time.Now()
			}
		}()
	}
	cost := heap() - before
	// The readers are on this machine too, and so may others be: of several rounds the best counts.
	const rounds, most = 5, 100 * time.Millisecond
	best := time.Hour
	for round := 0; round < rounds && best > most; round++ {
		var late []time.Duration
		for n := range 20 {
			rec := f.Tasks[n]
			rec.Paused = round%2 == 0
			at := time.Now()
			f.Change(rec)
			for range pages {
				late = append(late, (<-got).Sub(at))
			}
		}
		slices.Sort(late)
		t.Logf("%d pages with their readers: %d KiB; changes came after %s (median), %s (99 of 100), %s (last)", pages, cost>>10,
			late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
		best = min(best, late[len(late)-1])
	}
	if best > most && racetest.Rounds(10) == 10 {
		t.Errorf("a change came after %s, more than %s, in each of %d rounds", best, most, rounds)
	}
	if cost > 100<<20 {
		t.Errorf("%d pages cost %d MiB", pages, cost>>20)
	}
}

// The page says which worker does a task, and for which one a task waits.
func TestWorkerStates(t *testing.T) {
	for want, r := range map[string]task.Record{
		"running at gpu-1":     {Status: task.Running, On: "gpu", Worker: "gpu-1"},
		"waits for worker gpu": {Status: task.Pending, On: "gpu"},
		"waits to start":       {Status: task.Pending},
		"running":              {Status: task.Running},
	} {
		if got, _ := stateOf(r, time.Now()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
