package agentsdk

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// rules:constant a flag of the test binary
var update = flag.Bool("update", false, "write the golden files and the example of docs/stream-json.md anew")

// stories are sessions as they happen, and the lines that they print.
func stories() []struct {
	name string
	play func(w *world)
} {
	return []struct {
		name string
		play func(w *world)
	}{
		{"plain", plainStory},
		{"background-shell", shellStory},
		{"background-agent", agentStory},
		{"failed-agent", failedStory},
		{"stop", stopStory},
		{"promotion", promotionStory},
		{"slow-foreground", slowStory},
		{"interrupt", interruptStory},
		{"limits", limitsStory},
		{"nested", nestedStory},
		{"resume", resumeStory},
		{"compaction", compactionStory},
	}
}

func TestGolden(t *testing.T) {
	for _, story := range stories() {
		t.Run(story.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{Format: StreamJSON})
				w.run(func() { story.play(w) })
				w.lines()
				golden(t, filepath.Join("testdata", story.name+".ndjson"), normal(w.out.String()))
			})
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what was printed (see -update):\n%s", file, firstDifference(string(want), got))
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := "(nothing)", "(nothing)"
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, a, b)
		}
	}
	return ""
}

// The page shows what the program prints, not what somebody thought it does.
func TestPage(t *testing.T) {
	const page, begin, end = "../../../docs/stream-json.md", "<!-- background-shell -->\n```json\n", "```\n<!-- end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("testdata/background-shell.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	shown, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the page has no place for the example")
	}
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+string(example)+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if shown != string(example) {
		t.Error("the example of docs/stream-json.md is stale: run this test with -update")
	}
}

func plainStory(w *world) {
	w.start("What is 1 < 2 & why?")
	time.Sleep(time.Second)
	w.reply(session, "msg_1",
		agent.Block{Type: "thinking", Thinking: "hm", Signature: "sig"},
		agent.TextBlock("I look."), use("toolu_1", "Read", `{"file_path":"/src/a<b>.go"}`))
	w.tool(session, "toolu_1", "Read", agent.Output{Text: "no such file: a<b>.go", IsError: true})
	time.Sleep(500 * time.Millisecond)
	w.reply(session, "msg_2", agent.TextBlock("Because 1 < 2 & so on."))
	w.done(result(2, "Because 1 < 2 & so on."), nil)
}

func launchShell(w *world, id task.ID) {
	w.reply(session, "msg_1", use("toolu_1", "Bash", `{"command":"make test","run_in_background":true}`))
	w.create(task.Record{ID: id, Kind: task.LocalBash, Description: "run the tests", Command: "make test", ToolUseID: "toolu_1", Backgrounded: true})
	w.begin(id)
	w.tool(session, "toolu_1", "Bash", agent.Output{Text: "Command running in the background with ID: " + string(id), Structured: map[string]any{"stdout": "", "stderr": "", "backgroundTaskId": id}})
}

func shellStory(w *world) {
	w.start("run the tests")
	launchShell(w, "b11111111")
	w.reply(session, "msg_2", agent.TextBlock("The tests run."))
	w.done(result(2, "The tests run."), nil)
	time.Sleep(30 * time.Second)
	w.end("b11111111", nil, exit(3), errExit)
	w.start("", agent.MailMessage{Seq: 3, Text: "<task-notification>…</task-notification>", Origin: "task-notification"})
	w.reply(session, "msg_3", agent.TextBlock("The tests failed."))
	w.done(result(1, "The tests failed."), nil)
}

func agentStory(w *world) {
	w.start("look around")
	w.reply(session, "msg_1", use("toolu_1", "Agent", `{"description":"look","prompt":"look around","run_in_background":true}`))
	w.create(task.Record{ID: "a11111111", Kind: task.LocalAgent, Description: "look", Prompt: "look around", AgentType: "general-purpose", Model: "small", ToolUseID: "toolu_1", Backgrounded: true})
	w.tool(session, "toolu_1", "Agent", agent.Output{Text: "launched", Structured: map[string]any{"status": "async_launched", "agent_id": "a11111111"}})
	w.begin("a11111111")
	for i, tool := range []string{"Glob", "Read"} {
		w.reply("a11111111", fmt.Sprintf("msg_a%d", i), use(fmt.Sprintf("toolu_a%d", i), tool, `{}`))
		time.Sleep(time.Second)
		w.tool("a11111111", fmt.Sprintf("toolu_a%d", i), tool, agent.Output{Text: "ok"})
	}
	w.reply("a11111111", "msg_a2", agent.TextBlock("All is well."))
	w.reply(session, "msg_2", agent.TextBlock("I wait."))
	w.done(result(2, "I wait."), nil)
	w.answer["run_1_a11111111"] = "All is well."
	w.end("a11111111", nil, used(330, 2), nil)
	w.start("", agent.MailMessage{Seq: 3, Text: "note"})
	w.reply(session, "msg_3", agent.TextBlock("All is well, says the agent."))
	w.done(result(1, "All is well, says the agent."), nil)
}

func failedStory(w *world) {
	w.start("ask somebody")
	w.reply(session, "msg_1", use("toolu_1", "Agent", `{"description":"try","prompt":"try"}`))
	w.create(task.Record{ID: "a11111111", Kind: task.LocalAgent, Description: "try", Prompt: "try", AgentType: "general-purpose", ToolUseID: "toolu_1"})
	w.begin("a11111111")
	w.end("a11111111", nil, used(0, 0), errors.New("the model is overloaded"))
	w.tool(session, "toolu_1", "Agent", agent.Output{Text: "the model is overloaded", IsError: true})
	w.reply(session, "msg_2", agent.TextBlock("It failed."))
	w.done(result(2, "It failed."), nil)
}

func stopStory(w *world) {
	w.start("start and stop")
	launchShell(w, "b11111111")
	w.reply(session, "msg_2", use("toolu_2", "TaskStop", `{"task_id":"b11111111"}`))
	w.do("b11111111", lifecycle.Change{Verb: task.RequestStop})
	time.Sleep(100 * time.Millisecond)
	code := -1
	w.end("b11111111", stopped, task.Result{ExitCode: &code, Signal: "SIGTERM"}, errors.New("signal: terminated"))
	w.tool(session, "toolu_2", "TaskStop", agent.Output{Text: "stopped"})
	w.reply(session, "msg_3", agent.TextBlock("Stopped."))
	w.done(result(3, "Stopped."), nil)
}

func foreground(w *world, id task.ID) {
	w.reply(session, "msg_1", use("toolu_1", "Bash", `{"command":"make"}`))
	w.create(task.Record{ID: id, Kind: task.LocalBash, Command: "make", ToolUseID: "toolu_1"})
	w.begin(id)
}

func promotionStory(w *world) {
	w.start("build it")
	foreground(w, "b11111111")
	time.Sleep(3 * time.Second)
	w.do("b11111111", lifecycle.Change{Verb: task.Background})
	w.tool(session, "toolu_1", "Bash", agent.Output{Text: "moved to the background"})
	w.reply(session, "msg_2", agent.TextBlock("It goes on."))
	w.done(result(2, "It goes on."), nil)
	w.end("b11111111", nil, exit(0), nil)
}

// slowStory has a command that is told of and one that is too fast for it.
func slowStory(w *world) {
	w.start("build it")
	foreground(w, "b11111111")
	time.Sleep(patience)
	synctest.Wait()
	time.Sleep(time.Second)
	w.end("b11111111", nil, exit(0), nil)
	w.tool(session, "toolu_1", "Bash", agent.Output{Text: "built"})
	foreground(w, "b22222222")
	time.Sleep(patience - time.Millisecond)
	w.end("b22222222", nil, exit(0), nil)
	w.tool(session, "toolu_1", "Bash", agent.Output{Text: "built again"})
	time.Sleep(time.Minute)
	w.done(result(2, ""), nil)
}

func interruptStory(w *world) {
	w.start("build it")
	foreground(w, "b11111111")
	time.Sleep(time.Second)
	code := -1
	w.end("b11111111", &task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}, task.Result{ExitCode: &code}, errors.New("killed"))
	w.tool(session, "toolu_1", "Bash", agent.Output{Text: "interrupted while this call ran; it may have had effects", IsError: true})
	r := result(1, "")
	r.Reason = "interrupted"
	w.done(r, fmt.Errorf("turn interrupted: %w", context.Canceled))
	w.start("and now?")
	w.s.Agent(session, agent.Event{Kind: agent.PartEvent, Part: agent.Part{Kind: agent.TextPart, Text: "I"}})
	r.Text = "I"
	w.done(r, fmt.Errorf("turn interrupted: %w", context.Canceled))
}

func limitsStory(w *world) {
	w.start("go on for ever")
	w.reply(session, "msg_1", agent.TextBlock("So far, so good."), use("toolu_1", "Write", `{}`))
	w.tool(session, "toolu_1", "Write", agent.Output{Text: "denied", IsError: true})
	r := result(1, "So far, so good.")
	r.Reason, r.StopReason = "max_turns", "tool_use"
	r.Denials = []agent.Denial{{ToolUseID: "toolu_1", Name: "Write", Input: []byte(`{}`), Reason: "denied"}}
	w.done(r, &agent.LimitError{Limit: "max_turns", N: 1})
	w.start("again")
	w.s.Agent(session, agent.Event{Kind: agent.PartEvent, Part: retried()})
	w.done(agent.TurnResult{Reason: "error"}, &agent.ModelError{Text: "the model is overloaded: try again later"})
}

func retried() agent.Part {
	return agent.Part{Kind: agent.RetryPart, Retry: agent.Retry{Attempt: 1, Most: 9, After: time.Second, Why: agent.ModelError{Kind: "overloaded", Status: 529, Text: "busy"}}}
}

func compactionStory(w *world) {
	compact := func(from task.ID, did agent.Compacted, err error) {
		w.s.Agent(from, agent.Event{Kind: agent.CompactStartEvent, Compaction: &agent.Compacted{Trigger: did.Trigger, Before: did.Before}})
		w.s.Agent(from, agent.Event{Kind: agent.CompactEvent, Compaction: &did, Err: err})
	}
	w.start("read everything")
	w.reply(session, "msg_1", use("toolu_1", "Read", `{}`))
	w.tool(session, "toolu_1", "Read", agent.Output{Text: "long"})
	compact(session, agent.Compacted{Trigger: "overflow", Before: 190_000, Summary: "much was read"}, nil)
	w.create(task.Record{ID: "a11111111", Kind: task.LocalAgent, Description: "helper", AgentType: "general-purpose", ToolUseID: "toolu_2"})
	w.begin("a11111111")
	compact("a11111111", agent.Compacted{Trigger: "auto", Before: 150_000, Summary: "of its own"}, nil)
	w.do("a11111111", lifecycle.Change{Verb: task.Report, Progress: &task.Progress{Message: "reads on", Summary: ""}})
	w.tool("a11111111", "toolu_a1", "Read", agent.Output{Text: "x"})
	w.summarize("a11111111", "has read half of it")
	w.tool("a11111111", "toolu_a2", "Read", agent.Output{Text: "y"})
	w.end("a11111111", nil, used(110, 2), nil)
	compact(session, agent.Compacted{Trigger: "auto", Before: 180_000}, errors.New("the model gave no summary"))
	r := result(2, "")
	r.Reason = "max_budget_usd"
	w.done(r, &agent.LimitError{Limit: "max_budget_usd", Text: "the budget of $1.00 is spent ($1.02)"})
}

func nestedStory(w *world) {
	w.start("delegate")
	w.reply(session, "msg_1", use("toolu_1", "Agent", `{}`))
	w.create(task.Record{ID: "a11111111", Kind: task.LocalAgent, Description: "outer", AgentType: "general-purpose", ToolUseID: "toolu_1"})
	w.begin("a11111111")
	w.reply("a11111111", "msg_a1", use("toolu_a1", "Agent", `{}`))
	w.create(task.Record{ID: "a22222222", Kind: task.LocalAgent, Description: "inner", AgentType: "general-purpose", ToolUseID: "toolu_a1", Parent: "a11111111", Depth: 2})
	w.begin("a22222222")
	w.reply("a22222222", "msg_b1", use("toolu_b1", "Read", `{}`))
	w.tool("a22222222", "toolu_b1", "Read", agent.Output{Text: "not forwarded"})
	w.answer["run_1_a22222222"] = "inner report"
	w.end("a22222222", nil, used(110, 1), nil)
	w.tool("a11111111", "toolu_a1", "Agent", agent.Output{Text: "inner report"})
	w.end("a11111111", nil, used(220, 1), nil)
	w.tool(session, "toolu_1", "Agent", agent.Output{Text: ""})
	w.done(result(1, "done"), nil)
}

func resumeStory(w *world) {
	w.start("and once more")
	w.create(task.Record{ID: "a11111111", Kind: task.LocalAgent, Description: "look", AgentType: "general-purpose", ToolUseID: "toolu_1", Backgrounded: true})
	w.begin("a11111111")
	w.do("a11111111", lifecycle.Change{Verb: task.Pause})
	w.do("a11111111", lifecycle.Change{Verb: task.Thaw})
	lost := &task.StopError{Cause: task.Cause{Actor: task.ByKeeper, Reason: task.ReasonHostLost}}
	w.end("a11111111", nil, used(10, 0), errors.Join(task.ErrLost, lost))
	w.do("a11111111", lifecycle.Change{Verb: task.Resume, Run: "run_2_a11111111", Background: true, ToolUseID: "toolu_1"})
	w.begin("a11111111")
	w.tool("a11111111", "toolu_a1", "Read", agent.Output{Text: "ok"})
	w.end("a11111111", nil, used(20, 1), nil)
	w.done(result(1, "done"), nil)
}
