package session

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/dream"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/project/memory"
	"github.com/drover-dev/drover/internal/session/dreams"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// sayings is what the user is told.
type sayings struct {
	mu    sync.Mutex
	texts []string
	grown chan struct{} // closed and replaced with each
}

func (s *sayings) tell(_ task.ID, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = append(s.texts, text)
	if s.grown != nil {
		close(s.grown)
	}
	s.grown = make(chan struct{})
}

// until waits until the user was told something that holds a text.
func (s *sayings) until(r *testSession, piece string) {
	r.t.Helper()
	for {
		s.mu.Lock()
		if s.grown == nil {
			s.grown = make(chan struct{})
		}
		texts, grown := slices.Clone(s.texts), s.grown
		s.mu.Unlock()
		if slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, piece) }) {
			return
		}
		select {
		case <-grown:
		case <-r.ctx.Done():
			r.t.Fatalf("nobody was told %q, but %q", piece, texts)
		}
	}
}

// remembering is a session with a memory, whose agents walk through lists.
func remembering(t *testing.T, lists map[string][]modeltest.Answer, change ...func(*Config)) (*testSession, *modeltest.Server, *sayings) {
	t.Helper()
	return rememberingBy(t, modeltest.Turns(lists), change...)
}

func rememberingBy(t *testing.T, handle modeltest.Handler, change ...func(*Config)) (*testSession, *modeltest.Server, *sayings) {
	t.Helper()
	heard := &sayings{}
	r, server := served(t, handle, append([]func(*Config){func(c *Config) {
		c.Agents.Memory = memory.At(c.Place.Project().Memory())
		c.Tell = heard.tell
	}}, change...)...)
	return r, server, heard
}

func (r *testSession) store() *memory.Store { return r.cfg.Agents.Memory }

// stamp sets or reads the time of the last consolidation, as the file has it.
func (r *testSession) stamp(set ...time.Time) time.Time {
	r.t.Helper()
	path := filepath.Join(r.store().Dir(), "consolidation")
	for _, at := range set {
		write(r.t, path, "{}")
		if err := os.Chtimes(path, at, at); err != nil {
			r.t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func (r *testSession) dream() control.Started {
	r.t.Helper()
	started, err := r.Start(r.ctx, []control.StartRequest{{Dream: &control.DreamRequest{}, Cwd: r.folder}})
	if err != nil || len(started) != 1 {
		r.t.Fatalf("start: %+v, %v", started, err)
	}
	return started[0]
}

func (r *testSession) dreams() task.Record {
	r.t.Helper()
	s := r.dream()
	if s.Error != nil {
		r.t.Fatal(s.Error)
	}
	return *s.Task
}

func writing(name, text string) modeltest.Answer {
	return modeltest.Call("Write", map[string]any{"file_path": name, "content": text})
}

var longAgo = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A dream changes memory, moves the time of the lock, and is heard of by a line in
// the transcript and nothing else.
func TestDream(t *testing.T) {
	r, server, heard := remembering(t, map[string][]modeltest.Answer{
		"main":  {modeltest.Text("hello")},
		"dream": {writing("MEMORY.md", "- builds with make\n"), modeltest.Text("I wrote one line.")},
	})
	r.stamp(longAgo)
	c := converse(r)
	c.say("hi")
	c.next()
	rec := r.wait(string(r.dreams().ID))[0]
	if rec.Kind != task.Dream || rec.ID[0] != 'd' || rec.Status != task.Completed || rec.Progress.Phase != dream.Updating || !rec.Notified || !rec.Silent || rec.Owner != "" || rec.Usage.Turns != 2 {
		t.Errorf("record %+v", rec)
	}
	if text, err := os.ReadFile(filepath.Join(r.store().Dir(), memory.Index)); err != nil || string(text) != "- builds with make\n" {
		t.Errorf("memory %q, %v", text, err)
	}
	if !r.stamp().After(longAgo) {
		t.Error("the time of the last consolidation is the old one")
	}
	heard.until(r, "memory was updated: MEMORY.md")
	if info, err := os.Stat(rec.OutputFile); err == nil && info.Size() > 0 {
		t.Errorf("the output has %d bytes", info.Size())
	}
	if _, err := c.settle(time.Minute); err != nil {
		t.Error(err)
	}
	if n := len(of(server, "main")); n != 1 || r.owed(r.cfg.Info.Session) != 0 {
		t.Errorf("%d requests of the main agent, %d notifications owed", n, r.owed(r.cfg.Info.Session))
	}
	text, err := os.ReadFile(r.cfg.Place.Transcript())
	if err != nil || !strings.Contains(string(text), `"note":"memory was updated: MEMORY.md"`) {
		t.Errorf("the transcript has no note: %v", err)
	}
	first := params(t, of(server, "dream")[0])
	if got := toolNames(first); !slices.Equal(got, []string{"Edit", "Glob", "Grep", "Read", "Write", "context_board"}) {
		t.Errorf("tools %q", got)
	}
	if first.Model != "claude-haiku-4-5" && !strings.Contains(first.Model, "haiku") {
		t.Errorf("model %s", first.Model)
	}
	prompt := of(server, "dream")[0].LastText()
	for _, piece := range []string{r.store().Dir(), r.cfg.Place.Transcript(), "2026-01-02T03:04:05Z", "orient"} {
		if !strings.Contains(prompt, piece) {
			t.Errorf("the prompt does not say %q: %s", piece, prompt)
		}
	}
}

// The note is no part of the conversation: who goes on with it sends the same.
func TestDreamNote(t *testing.T) {
	r, server, heard := remembering(t, map[string][]modeltest.Answer{
		"main": {modeltest.Text("one"), modeltest.Text("two")}, "dream": {modeltest.Text("nothing to do")}})
	c := converse(r)
	c.say("first")
	c.next()
	r.wait(string(r.dreams().ID))
	heard.until(r, "nothing had to be changed")
	c.stop()
	r.reopen()
	c = converse(r)
	c.say("second")
	if turn := c.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	if got := params(t, of(server, "main")[1]).Messages; len(got) != 3 || strings.Contains(string(of(server, "main")[1].Body), "had to be changed") {
		t.Errorf("%d messages", len(got))
	}
}

// A stop puts the time back, so that the next session may dream; a stop of what has
// ended changes nothing.
func TestDreamStop(t *testing.T) {
	reached := make(chan struct{})
	n := 0
	r, _, _ := rememberingBy(t, func(ctx context.Context, _ *modeltest.Request) modeltest.Answer {
		if n++; n == 1 {
			return writing("a.md", "x")
		}
		close(reached)
		<-ctx.Done()
		return modeltest.Text("never")
	})
	r.stamp(longAgo)
	rec := r.dreams()
	select {
	case <-reached:
	case <-r.ctx.Done():
		t.Fatal(context.Cause(r.ctx))
	}
	if r.stamp().Equal(longAgo) {
		t.Fatal("the lock is not claimed")
	}
	if s := r.dream(); s.Error == nil || s.Error.Code != control.Conflict {
		t.Errorf("a second one: %+v", s)
	}
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(rec.ID)}}); err != nil {
		t.Fatal(err)
	}
	now, _ := r.Get(r.ctx, string(rec.ID))
	if now.Status != task.Killed || !now.Notified || !r.stamp().Equal(longAgo) {
		t.Errorf("%s, notified %v, time %s", now.Status, now.Notified, r.stamp())
	}
	later := longAgo.Add(time.Hour)
	r.stamp(later)
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(rec.ID)}}); err != nil || !r.stamp().Equal(later) {
		t.Errorf("a second stop: %v, time %s", err, r.stamp())
	}
	if l, err := r.store().Acquire(); err != nil {
		t.Errorf("the next cannot dream: %v", err)
	} else {
		_ = l.Rollback()
	}
}

// What a host that died has claimed is put back by the next session that opens.
func TestDreamCrash(t *testing.T) {
	r, _, _ := remembering(t, nil)
	path := filepath.Join(r.store().Dir(), "consolidation")
	write(t, path, `{"v":1,"holder":{"pid":999999,"start":1,"boot":"another"},"prior":"2026-01-02T03:04:05Z"}`)
	r.reopen()
	if !r.stamp().Equal(longAgo) {
		t.Errorf("the time is %s", r.stamp())
	}
}

// A dream reads memory and transcripts, and changes memory, whatever it tries and
// whatever mode the session is in.
func TestDreamArea(t *testing.T) {
	var r *testSession
	secret := filepath.Join(t.TempDir(), "secret.md")
	write(t, secret, "top secret")
	read := func(path string) agent.Block { return modeltest.ToolUse("", "Read", map[string]any{"file_path": path}) }
	put := func(path, text string) agent.Block {
		return modeltest.ToolUse("", "Write", map[string]any{"file_path": path, "content": text})
	}
	var answers []string
	tries := map[string]struct {
		call func() agent.Block
		says string // empty: it works
	}{
		"own":      {func() agent.Block { return put("own.md", "x") }, ""},
		"absolute": {func() agent.Block { return put(filepath.Join(r.store().Dir(), "abs.md"), "x") }, ""},
		"session":  {func() agent.Block { return read(r.cfg.Place.Transcript()) }, ""},
		"board":    {func() agent.Block { return put("board.jsonl", "x") }, "ends in .md"},
		"project":  {func() agent.Block { return put(filepath.Join(r.folder, "x.md"), "x") }, "not in the memory folder"},
		"parent":   {func() agent.Block { return put("../x.md", "x") }, "not in the memory folder"},
		"database": {func() agent.Block { return read(r.cfg.Place.DB()) }, "denied"},
		"secret":   {func() agent.Block { return read(secret) }, "outside"},
		"link":     {func() agent.Block { return read("link.md") }, "outside"},
		"through":  {func() agent.Block { return put("link.md", "x") }, "symbolic link"},
		"denied":   {func() agent.Block { return put("private.md", "x") }, "private.md"},
		"bash":     {func() agent.Block { return modeltest.ToolUse("", "Bash", map[string]any{"command": "touch /tmp/x"}) }, "no tool"},
		"agent":    {func() agent.Block { return delegate("explore", "look") }, "no tool"},
		"big":      {func() agent.Block { return put("big.md", strings.Repeat("x", memory.MaxFile+1)) }, "at most"},
		"grep": {func() agent.Block {
			return modeltest.ToolUse("", "Grep", map[string]any{"pattern": "findable", "path": r.cfg.Place.Project().Dir(), "output_mode": "files_with_matches"})
		}, ""},
	}
	names := slices.Sorted(maps.Keys(tries))
	n := 0
	r, _ = served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		if q.Agent() == "main" {
			return modeltest.Text("findable")
		}
		if n > 0 {
			answers = append(answers, q.LastText())
		}
		n++
		if n > len(names) {
			return modeltest.Text("done")
		}
		return blocks(tries[names[n-1]].call())
	}, func(c *Config) {
		c.Agents.Memory = memory.At(c.Place.Project().Memory())
		c.Agents.Rules.Deny = []string{"Edit(" + c.Place.Project().Memory() + "/private.md)"}
	})
	write(t, filepath.Join(r.cfg.Place.Dir(), "tasks", "findable.output"), "findable")
	if err := r.store().Ensure(); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(r.store().Dir(), "link.md")); err != nil {
		t.Fatal(err)
	}
	c := converse(r)
	c.say("hi")
	c.next()
	rec := r.wait(string(r.dreams().ID))[0]
	if rec.Status != task.Completed || len(answers) != len(names) {
		t.Fatalf("%s (%s) after %d calls", rec.Status, rec.Error, len(answers))
	}
	for i, name := range names {
		says := tries[name].says
		if says != "" && !strings.Contains(strings.ToLower(answers[i]), says) || says == "" && strings.Contains(answers[i], "not ") {
			t.Errorf("%s: %q", name, answers[i])
		}
	}
	if grep := answers[slices.Index(names, "grep")]; !strings.Contains(grep, "transcript.jsonl") || strings.Contains(grep, "findable.output") {
		t.Errorf("Grep finds %q", grep)
	}
	if text, _ := os.ReadFile(secret); string(text) != "top secret" {
		t.Errorf("the file behind a link is %q", text)
	}
	files, _, _ := r.store().Files()
	if len(files) != 2 {
		t.Errorf("files %+v", files)
	}
}

// Of two hosts that dream at once one does, and the other says why not.
func TestDreamTwoHosts(t *testing.T) {
	goOn := make(chan struct{})
	held := modeltest.Text("done")
	held.Wait = goOn
	r, server, _ := remembering(t, map[string][]modeltest.Answer{"dream": {held}})
	cfg := r.cfg
	id := task.NewSessionID()
	cfg.Place, cfg.Info.Session = r.cfg.Place.Project().Session(id), id
	other, err := Open(r.ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	type result struct {
		rec task.Record
		err error
	}
	results := make(chan result, 2)
	var both sync.WaitGroup
	for _, s := range []*Session{r.Session, other} {
		both.Go(func() {
			rec, err := s.dreams.Start(r.ctx, dream.Manual, task.Spec{})
			if err == nil {
				_, err = s.Wait(r.ctx, control.WaitRequest{Refs: []string{string(rec.ID)}})
				rec, _ = s.sup.Get(rec.ID)
			}
			results <- result{rec, err}
		})
	}
	lost := <-results // the other one waits for the model
	refused := lost.err != nil && code(lost.err) == control.Conflict
	if late := lost.rec.Cause != nil && lost.rec.Cause.Reason == dream.ReasonHeld; !refused && !late {
		t.Errorf("the loser: %v, %+v", lost.err, lost.rec)
	}
	close(goOn)
	if won := <-results; won.err != nil || won.rec.Status != task.Completed {
		t.Errorf("the winner: %v, %+v", won.err, won.rec)
	}
	both.Wait()
	if server.Count() != 1 {
		t.Errorf("%d calls of the model", server.Count())
	}
}

// A session dreams by itself when it has been idle and the rule says so.
func TestDreamIdle(t *testing.T) {
	for name, c := range map[string]struct {
		mem    func(*options.Memory)
		last   time.Time
		dreams bool
	}{
		"due":      {func(m *options.Memory) { m.Dream, m.Sessions = "auto", 1 }, longAgo, true},
		"sessions": {func(m *options.Memory) { m.Dream, m.Sessions = "auto", 2 }, longAgo, false},
		"early":    {func(m *options.Memory) { m.Dream, m.Sessions, m.Every = "auto", 0, 24*time.Hour }, time.Now(), false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, heard := remembering(t, map[string][]modeltest.Answer{"main": {modeltest.Text("one")}, "dream": {modeltest.Text("done")}}, func(cfg *Config) {
				m := &cfg.Options.Memory
				m.IdleAfter, m.Every = time.Millisecond, 24*time.Hour
				c.mem(m)
				path := filepath.Join(cfg.Agents.Memory.Dir(), "consolidation")
				write(t, path, "{}")
				if err := os.Chtimes(path, c.last, c.last); err != nil {
					t.Fatal(err)
				}
			})
			talk := converse(r)
			talk.say("hi")
			talk.next()
			if c.dreams {
				heard.until(r, "nothing had to be changed")
				if rec := r.only("dream"); rec.Status != task.Completed || !rec.Silent {
					t.Errorf("record %+v", rec)
				}
				return
			}
			if _, err := r.Session.dreams.StartIfDue(r.ctx, time.Time{}); err != nil {
				t.Fatal(err)
			}
			for _, rec := range r.sup.List(0) {
				if rec.Kind == task.Dream {
					t.Errorf("it has dreamt: %+v", rec)
				}
			}
		})
	}
}

// A dream has the budget of an agent at the top, and its share is set aside before
// it begins.
func TestDreamBudget(t *testing.T) {
	goOn, asked := make(chan struct{}), make(chan struct{})
	r, _, _ := rememberingBy(t, func(context.Context, *modeltest.Request) modeltest.Answer {
		close(asked)
		held := modeltest.Text("nothing to do")
		held.Wait = goOn
		return held
	}, counted(t, 10_000), func(c *Config) { c.Options.Agents.BudgetWall = time.Hour })
	rec := r.dreams()
	if rec.Budget.Tokens != 10_000 || rec.Budget.WallMS != time.Hour.Milliseconds() || rec.TimeoutMS != time.Hour.Milliseconds() {
		t.Errorf("budget %+v, time limit %d ms", rec.Budget, rec.TimeoutMS)
	}
	<-asked
	if shares := r.cfg.Agents.Accounts.Shares(string(rec.ID)); len(shares) != 1 || shares[0].Budget.Tokens != 10_000 {
		t.Errorf("shares %+v", shares)
	}
	close(goOn)
	if got := r.wait(string(rec.ID))[0]; got.Status != task.Completed {
		t.Errorf("%s %s", got.Status, got.Error)
	}
}

// A dream that failed is not tried again at each rest, of which its own end is one.
func TestDreamFailsOnce(t *testing.T) {
	r, server, _ := remembering(t, map[string][]modeltest.Answer{"main": {modeltest.Text("one"), modeltest.Text("two")},
		"dream": {modeltest.Error(400, "invalid_request_error", "no")}}, func(c *Config) { c.Options.Memory.Sessions = 0 })
	timer := r.Session.dreams
	var last time.Time
	for range 3 {
		var err error
		if last, err = timer.StartIfDue(r.ctx, last); err != nil {
			t.Fatal(err)
		}
		for _, rec := range r.sup.List(0) {
			r.wait(string(rec.ID))
		}
	}
	if n := len(of(server, "dream")); n != 1 {
		t.Errorf("it has dreamt %d times", n)
	}
	if again, err := timer.StartIfDue(r.ctx, last.Add(-25*time.Hour)); err != nil || again.Equal(last) {
		t.Error("it does not dream a day later")
	}
}

func TestDreamRefused(t *testing.T) {
	r, _, _ := remembering(t, nil)
	for name, req := range map[string]control.StartRequest{
		"both":    {Dream: &control.DreamRequest{}, Shell: &control.ShellRequest{Line: "true"}},
		"keep":    {Dream: &control.DreamRequest{}, Keep: true},
		"lease":   {Dream: &control.DreamRequest{}, Lease: "x"},
		"timeout": {Dream: &control.DreamRequest{}, Timeout: -1},
	} {
		started, err := r.Start(r.ctx, []control.StartRequest{req})
		if err != nil || started[0].Error == nil || started[0].Error.Code != control.Invalid {
			t.Errorf("%s: %+v, %v", name, started, err)
		}
	}
	plain := open(t, "")
	if s := plain.dream(); s.Error == nil || s.Error.Code != control.Unavailable {
		t.Errorf("without memory: %+v", s)
	}
}

// The command starts an ordinary agent once, whose end is told like any other.
func TestSubconsciousRun(t *testing.T) {
	r, server, _ := remembering(t, map[string][]modeltest.Answer{
		"main": {
			blocks(modeltest.ToolUse("", "Agent", map[string]any{"subagent_type": "rem-agent", "mode": "background", "name": "rem-consolidate",
				"description": "Consolidate session learnings", "prompt": "we use make"})),
			modeltest.Text("it is under way"), modeltest.Text("told"),
		},
		"rem-agent": {modeltest.Call("context_board", map[string]any{"action": "add", "text": "we use make"}), modeltest.Text("added one")},
	})
	c := converse(r)
	c.say("/subconscious run")
	if first := c.next(); first.Err != nil {
		t.Fatal(first.Err)
	}
	if _, err := c.settle(time.Minute); err != nil {
		t.Fatal(err)
	}
	prompt := of(server, "main")[0].LastText()
	for _, piece := range []string{"exactly once", "rem-agent", "background", "rem-consolidate", "Consolidate session learnings"} {
		if !strings.Contains(prompt, piece) {
			t.Errorf("the prompt does not say %q: %s", piece, prompt)
		}
	}
	rec := r.only("rem-agent")
	if rec.Kind != task.LocalAgent || rec.Silent || rec.Name != "rem-consolidate" || rec.Status != task.Completed {
		t.Errorf("record %+v", rec)
	}
	if !strings.Contains(of(server, "main")[2].LastText()+of(server, "main")[1].LastText(), "<task-notification>") {
		t.Error("the main agent was not told of the end")
	}
	if got := toolNames(params(t, of(server, "rem-agent")[0])); !slices.Equal(got, []string{"context_board"}) {
		t.Errorf("tools %q", got)
	}
	if b, err := r.store().Board(); err != nil || len(b.Entries) != 1 || b.Entries[0].By != "rem-consolidate" {
		t.Errorf("board %+v, %v", b.Entries, err)
	}
	if got := toolNames(params(t, of(server, "main")[0])); slices.Contains(got, "context_board") {
		t.Error("the main agent has the board")
	}
}

// The other words are answered without the model.
func TestSubconsciousWords(t *testing.T) {
	r, server, _ := remembering(t, nil)
	c := converse(r)
	for _, one := range []struct{ prompt, says string }{
		{"/subconscious", "consolidated last: never"},
		{"/subconscious on", "at its end: on"},
		{"/subconscious status", "at its end: on"},
		{"/subconscious off", "at its end: off"},
		{"/subconscious dance", "not known"},
	} {
		c.say(one.prompt)
		if turn := c.next(); turn.Err != nil || !strings.Contains(turn.Result.Text, one.says) {
			t.Errorf("%s: %+v", one.prompt, turn)
		}
	}
	if server.Count() != 0 {
		t.Errorf("%d calls of the model", server.Count())
	}
	plain := converse(open(t, "  main: [{text: x}]\n"))
	plain.say("/subconscious run")
	if turn := plain.next(); turn.Err != nil || !strings.Contains(turn.Result.Text, "Nothing is remembered") {
		t.Errorf("without memory: %+v", turn)
	}
}

// What a conversation hands on: only when it is wanted, only after enough prompts,
// and not from one that was left behind itself.
func TestParting(t *testing.T) {
	answers := slices.Repeat([]modeltest.Answer{modeltest.Text("an answer </conversation>")}, 3)
	r, _, _ := remembering(t, map[string][]modeltest.Answer{"main": answers}, func(c *Config) { c.Options.Memory.ShutdownRun = true })
	c := converse(r)
	none := func(string) string { return "" }
	for i := range 3 {
		if _, ok := c.main.Handover(none); ok {
			t.Errorf("after %d prompts", i)
		}
		c.say(fmt.Sprintf("question %d", i))
		c.say("/subconscious status") // counts for nothing
		c.next()
		c.next()
	}
	p, ok := c.main.Handover(none)
	if !ok || p.Session != r.cfg.Info.Session || p.Transcript != r.cfg.Place.Transcript() {
		t.Fatalf("%v, %+v", ok, p)
	}
	if !strings.Contains(p.Prompt, "User: question 0\n\nAgent: an answer") || !strings.Contains(p.Prompt, "question 2") || strings.Count(p.Prompt, "</conversation>") != 1 {
		t.Errorf("prompt %q", p.Prompt)
	}
	if _, ok := c.main.Handover(func(name string) string { return map[string]string{dreams.ParentVariable: "s12345678"}[name] }); ok {
		t.Error("a process that was left behind leaves another behind")
	}
	c.say("/subconscious off")
	c.next()
	if _, ok := c.main.Handover(none); ok {
		t.Error("it is handed on although it was turned off")
	}
}

// A conversation without anybody in front consolidates in its own host.
func TestPartInside(t *testing.T) {
	r, server, _ := remembering(t, map[string][]modeltest.Answer{
		"main":      {modeltest.Text("one")},
		"rem-agent": {modeltest.Text("nothing to add")},
	}, func(c *Config) { c.Options.Memory.ShutdownRun, c.Options.Memory.ShutdownTurns = true, 1 })
	m, err := r.OpenMain(r.ctx, MainConfig{Model: "haiku"})
	if err != nil {
		t.Fatal(err)
	}
	rec := r.start(m, "learn this", time.Minute)
	r.wait(string(rec.ID))
	rem := r.wait(string(r.only("rem-agent").ID))[0]
	if rem.Status != task.Completed || rem.Mode != "dontAsk" || rem.Parent != "" {
		t.Errorf("record %+v", rem)
	}
	if got := params(t, of(server, "rem-agent")[0]).Model; got != "claude-haiku-5-5" {
		t.Errorf("it has the model %s", got)
	}
	if text := of(server, "rem-agent")[0].LastText(); !strings.Contains(text, "User: learn this") {
		t.Errorf("it is told %q", text)
	}
}

// rem-agent is one of the agents that are always there.
func TestRemAgent(t *testing.T) {
	def, err := subagent.Builtin().Find("rem-agent")
	if err != nil || def.Description == "" || !slices.Equal(def.Tools, []string{"context_board"}) || !strings.Contains(def.Prompt, "Prune") {
		t.Errorf("%v: %+v", err, def)
	}
}
