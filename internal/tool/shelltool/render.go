package shelltool

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// render makes the result of a call from what became of the command.
func render(out Outcome, cmd Command, limit int) agent.Output {
	rec := out.Task
	text, partial := shown(out, limit)
	res := Result{
		Stdout:             text,
		TaskID:             string(rec.ID),
		OutputFile:         rec.OutputFile,
		BackgroundedByUser: out.ByUser,
	}
	if partial {
		res.PersistedOutputPath, res.PersistedOutputSize = rec.OutputFile, rec.OutputBytes
	}
	if out.TimedOut {
		res.TimedOutAfterMS = cmd.Timeout.Milliseconds()
	}
	if out.Backgrounded { // which a wish for the background does not decide
		res.BackgroundTaskID = string(rec.ID)
		return agent.Output{Text: started(out, cmd, text), Structured: res}
	}
	res.Interrupted = rec.Status == task.Killed
	if rec.ExitCode != nil {
		res.Code = *rec.ExitCode
	} else if rec.Status != task.Completed {
		res.Code = -1
	}
	if text == "" {
		text = "(no output)"
	}
	if end := ending(out, cmd); end != "" {
		text = strings.TrimRight(text, "\n") + "\n\n" + end
	}
	return agent.Output{Text: text, IsError: rec.Status != task.Completed || res.Code != 0, Structured: res}
}

// shown is the output as the model may see it, and whether it is only the end.
func shown(out Outcome, limit int) (string, bool) {
	raw := out.Output
	partial := int64(len(raw)) < out.Task.OutputBytes
	if partial {
		raw = wholeRunes(raw)
	}
	text, cut := excerpt.Tail(excerpt.Plain(raw), limit, out.Task.OutputFile)
	if partial && !cut {
		text = excerpt.End(text, limit, out.Task.OutputFile)
	}
	return text, partial || cut
}

// wholeRunes drops the rest of a code point that a cut at a byte has left.
func wholeRunes(s string) string {
	for i := 0; i < len(s) && i < utf8.UTFMax-1; i++ {
		if utf8.RuneStart(s[i]) {
			return s[i:]
		}
	}
	return s
}

// started describes a command that continues in the background.
func started(out Outcome, cmd Command, text string) string {
	var b strings.Builder
	switch {
	case out.TimedOut:
		fmt.Fprintf(&b, "The command did not end within %s and was moved to the background, where it goes on.\n",
			period(cmd.Timeout))
	case out.ByUser:
		b.WriteString("The user moved the command to the background, where it goes on.\n")
	case !cmd.Background:
		b.WriteString("The command was moved to the background, where it goes on.\n")
	default:
		b.WriteString("Background task started.\n")
	}
	fmt.Fprintf(&b, "Task ID: %s\nOutput file: %s\n", out.Task.ID, out.Task.OutputFile)
	if ms := out.Task.TimeoutMS; ms > 0 {
		fmt.Fprintf(&b, "It will be stopped after %s in all.\n", period(time.Duration(ms)*time.Millisecond))
	}
	b.WriteString("You will be told when it ends" + out.Unless + ".")
	if text != "" {
		b.WriteString("\n\nOutput so far:\n" + text)
	}
	return b.String()
}

// ending tells how a command ended, if not well.
func ending(out Outcome, cmd Command) string {
	rec := out.Task
	var lines []string
	switch {
	case out.TimedOut:
		lines = append(lines, "Stopped: it did not end within "+period(cmd.Timeout)+".")
	case rec.Status == task.Killed && rec.Cause != nil:
		why := fmt.Sprintf("Stopped by %s (%s)", rec.Cause.Actor, rec.Cause.Reason)
		if rec.Cause.Detail != "" {
			why += ": " + excerpt.Line(rec.Cause.Detail, 200)
		}
		lines = append(lines, why)
	case rec.Cause != nil && rec.Cause.Signal != "":
		lines = append(lines, "Ended by signal "+rec.Cause.Signal)
	case rec.ExitCode != nil && *rec.ExitCode != 0:
		lines = append(lines, fmt.Sprintf("Exit code %d", *rec.ExitCode))
	}
	if rec.Status == task.Failed && rec.Cause != nil && rec.Cause.Detail != "" {
		lines = append(lines, "Reason: "+excerpt.Line(rec.Cause.Detail, 200))
	}
	if rec.Error != "" && (len(lines) == 0 || rec.Cause != nil && rec.Cause.Reason == task.ReasonOutputLimit) {
		lines = append(lines, "Error: "+excerpt.Line(rec.Error, 500))
	}
	for _, note := range rec.Remarks() {
		lines = append(lines, "Note: "+excerpt.Line(note, 500))
	}
	if len(rec.Made) > 0 {
		lines = append(lines, "Tell the user of these files.")
	}
	return strings.Join(append(lines, walls(out)...), "\n")
}

// walls tells of what the sandbox has refused, as far as that can be seen, and how to ask for it.
func walls(out Outcome) (lines []string) {
	box := out.Task.Sandbox
	if box == nil {
		return nil
	}
	if len(out.Refused) > 0 {
		lines = append(lines, "The sandbox: "+excerpt.Line(strings.Join(out.Refused, "; "), 500)+".")
	}
	failed := out.Task.Status != task.Completed || out.Task.ExitCode != nil && *out.Task.ExitCode != 0
	end := out.Output[max(0, len(out.Output)-wallBytes):]
	has := func(words ...string) bool {
		return failed && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(end, w) })
	}
	if box.Write != "" && has(
		"Read-only file system", "Permission denied", "Operation not permitted", "EROFS", "EACCES", "EPERM") {
		lines = append(lines, "The sandbox lets commands write only in the workspace, in temporary folders, in caches and in what "+
			"the setting sandbox.write names, and neither changes protected files, such as .git/config and .git/hooks, nor reads secrets. "+
			"Of Unix sockets it reaches its own and those that the setting sandbox.unixSockets names.")
	}
	if box.Network == task.ByNamespace && has("Could not resolve host", "Network is unreachable",
		"Temporary failure in name resolution",
		"ENETUNREACH", "EAI_AGAIN", "ENOTFOUND") {
		lines = append(lines, "The sandbox has no network but its proxy, which HTTP_PROXY and ALL_PROXY name; localhost in it is not the machine's.")
	}
	if len(lines) > 0 {
		lines = append(lines, "If the command needs that, call Bash with outside and why: the user is asked.")
	}
	return lines
}

// wallBytes of the end of an output are looked at for refusals.
const wallBytes = 16 << 10

func period(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }
