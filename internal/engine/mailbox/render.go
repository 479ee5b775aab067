package mailbox

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Delivery is the input of a notification.
type Delivery struct {
	Task       task.Record
	Answer     string // of an agent: its final text
	Tail       string // of a failed command: the end of its output
	Transcript string // of an agent: its working folder
	Limit      int    // of Answer, in code points; 0: the default
}

// Render returns the text by which a model is notified of an end. The elements and their order
// are those of requirements NT-02 and NT-06, spelled with hyphens. Output of a task cannot
// close an element: text is escaped, and control characters are made visible.
func Render(l Delivery) string {
	r := l.Task
	var b strings.Builder
	b.WriteString("<task-notification>\n")
	element(&b, "task-id", string(r.ID))
	if r.ToolUseID != "" {
		element(&b, "tool-use-id", r.ToolUseID)
	}
	if r.OutputFile != "" {
		element(&b, "output-file", r.OutputFile)
	}
	element(&b, "status", string(r.Status))
	element(&b, "summary", Summary(r))
	limit := l.Limit
	if limit == 0 {
		limit = excerpt.DefaultLimit
	}
	if l.Answer != "" {
		text, _ := excerpt.Tail(excerpt.Plain(l.Answer), limit, r.OutputFile)
		element(&b, "result", text)
	}
	if l.Tail != "" {
		text, _ := excerpt.Tail(excerpt.Plain(l.Tail), limit, r.OutputFile)
		element(&b, "output-tail", text)
	}
	if u := r.Usage; u != nil && r.Traits().Work != task.ByCommand {
		uses := ""
		if l.Answer != "" {
			uses = fmt.Sprintf("<tool_uses>%d</tool_uses>", u.ToolUses)
		}
		fmt.Fprintf(&b, "<usage><total_tokens>%d</total_tokens>%s<duration_ms>%d</duration_ms></usage>\n",
			u.TotalTokens, uses, u.DurationMS)
	}
	if w := r.Worktree; w != nil && !w.Removed {
		b.WriteString("<worktree>" + place(*w) + "</worktree>\n")
	}
	if left := Left(r); len(left) > 0 {
		element(&b, "left-tasks", strings.Join(left, "\n"))
	}
	b.WriteString("</task-notification>")
	if l.Transcript != "" {
		b.WriteString("\nFull transcript available at: " + escape(l.Transcript))
	}
	return b.String()
}

// Left returns, for the owner of an agent that has ended, a line for each of its tasks whose end the
// agent has not seen.
func Left(r task.Record) (lines []string) {
	const most = 20
	for i, t := range r.LeftTasks {
		if i == most {
			return append(lines, fmt.Sprintf("And %d more tasks.", len(r.LeftTasks)-most))
		}
		line := fmt.Sprintf("%s %s (%s)", t.Noun, t.ID, oneLine(t.About, 60))
		switch t.Status {
		case task.Running:
			line = "Still running, and yours now: " + line + ". You will be notified when it ends."
		case task.Killed:
			line = "Stopped with the agent: " + line + "."
		default:
			line = fmt.Sprintf("Ended without the agent seeing it: %s, %s.", line, t.Status)
		}
		if t.OutputFile != "" {
			line += " Output file: " + t.OutputFile
		}
		lines = append(lines, line)
	}
	return lines
}

// RenderUnreadable returns the text by which a model is notified of an end whose record cannot
// be read.
func RenderUnreadable(n lifecycle.Notification, why error) string {
	var b strings.Builder
	b.WriteString("<task-notification>\n")
	element(&b, "task-id", string(n.Task))
	element(
		&b,
		"summary",
		fmt.Sprintf("Run %s has ended, and its record could not be read: %s", n.Run, oneLine(why.Error(), 300)),
	)
	b.WriteString("</task-notification>")
	return b.String()
}

// place describes where the work of an isolated agent is.
func place(w task.Worktree) string {
	var b strings.Builder
	for _, e := range [][2]string{{"path", w.Path}, {"branch", w.Branch}, {"rescue", w.Rescue}} {
		if e[1] != "" {
			fmt.Fprintf(&b, "<%s>%s</%s>", e[0], escape(e[1]), e[0])
		}
	}
	return b.String()
}

// RenderMessage returns the text in which a model receives a message. Its content cannot close
// the element or imitate a notification.
func RenderMessage(m task.Message) string {
	switch m.Kind { // notifications without a status: the task continues
	case task.Stalled:
		return fmt.Sprintf(
			"<task-notification>\n<task-id>%s</task-id>\n<summary>%s</summary>\n</task-notification>",
			attribute(m.From),
			escape(m.Text),
		)
	case task.Prompt:
		return "<waiting-prompt>\n" + escape(m.Text) + "\n</waiting-prompt>\n" + waited
	case task.MonitorEvent:
		return fmt.Sprintf(
			"<task-notification>\n<task-id>%s</task-id>\n<event>%s</event>\n</task-notification>",
			attribute(m.From),
			escape(m.Text),
		)
	}
	return fmt.Sprintf(
		"<agent-message from=\"%s\" kind=\"%s\">\n%s\n</agent-message>",
		attribute(m.From),
		attribute(string(m.Kind)),
		escape(m.Text),
	)
}

// waited introduces a prompt that arrives as mail.
const waited = "The user asked this earlier; the session was broken off before it was read. It holds unless what the user says since then takes its place."

// attribute returns quoted text.
func attribute(text string) string {
	return strings.ReplaceAll(escape(oneLine(text, 100)), `"`, "&quot;")
}

func element(b *strings.Builder, name, text string) {
	fmt.Fprintf(b, "<%s>%s</%s>\n", name, escape(text), name)
}

func escape(text string) string {
	return excerpt.Inert(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(excerpt.Plain(text)))
}

// Summary describes in one line how a run ended, and what else its owner must know.
func Summary(r task.Record) string {
	return oneLine(strings.Join(append([]string{outcome(r)}, r.Remarks()...), "; "), mostSummary)
}

// mostSummary limits a summary, in code points.
const mostSummary = 2000

func outcome(r task.Record) string {
	traits, name := r.Traits(), r.Description
	if traits.Work == task.ByCommand && name == "" {
		name = r.Command
	}
	what := cmp.Or(traits.Subject, "Task")
	if name == "" {
		name = string(r.ID)
	}
	subject := fmt.Sprintf("%s %q", what, oneLine(name, 60))
	switch r.Status {
	case task.Completed:
		if r.ExitCode != nil {
			return fmt.Sprintf("%s completed (exit code %d)", subject, *r.ExitCode)
		}
		return subject + " completed"
	case task.Failed:
		return subject + " failed" + failure(r)
	}
	return subject + " was stopped" + stopped(r)
}

func failure(r task.Record) string {
	how := failed(r)
	if r.Cause != nil && r.Cause.Detail != "" && (r.Cause.Signal != "" || r.ExitCode != nil) {
		how += ": " + oneLine(r.Cause.Detail, 120) // the error has it too, and is then not shown
	}
	return how
}

func failed(r task.Record) string {
	switch {
	case r.Cause != nil && r.Cause.Reason == task.ReasonTimeout:
		return fmt.Sprintf(": its time limit of %s passed", time.Duration(r.TimeoutMS)*time.Millisecond)
	case r.Cause != nil && r.Cause.Signal != "":
		return " (ended by " + r.Cause.Signal + ")"
	case r.ExitCode != nil && *r.ExitCode > 0:
		return fmt.Sprintf(" with exit code %d", *r.ExitCode)
	case r.Error != "":
		return ": " + oneLine(r.Error, 300)
	}
	return ": Unknown error"
}

func stopped(r task.Record) string {
	if r.Cause == nil {
		return ""
	}
	by := fmt.Sprintf(" (by %s: %s", r.Cause.Actor, r.Cause.Reason)
	if r.Cause.Detail != "" {
		by += ", " + oneLine(r.Cause.Detail, 120)
	}
	return by + ")"
}

func oneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return text
}
