//go:build linux

package knownfailures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

// ofProcesses are the failures of commands and of what they leave.
func ofProcesses() []failure {
	return []failure{
		{row: 4, name: "orphans", pain: "commands survive a crash as orphans", promise: "nothing remains, unless it was started with --keep, and then its exit code is known",
			try: "kill -9 of a host with a command of three processes in two sessions, and a kept one", run: orphans},
		{row: 4, name: "number", pain: "a stop signals a foreign process that has reused a PID", promise: "only processes that Drover started get a signal",
			try: "in a PID namespace a foreign process gets the PID of a lost command, which is then stopped", run: reusedNumber},
		{row: 5, name: "reasons", pain: "tasks are killed without a cause", promise: "every end has a cause",
			try: "five ends: exit, stop, deadline, signal from outside, dead host", run: reasons},
		{row: 6, name: "flood", pain: "output files fill the disk", promise: "a task ends at its limit, and says so",
			try: "an endless output, with a limit of 1 MB", run: flood},
		{row: 6, name: "quota", pain: "many tasks together fill the disk (2.5 TiB)", promise: "a quota for all sessions; removing one makes room",
			try: "an endless output, with a quota of 2 MB; a further start; drover sessions rm", run: quota},
		{row: 6, name: "loop", pain: "a task reads its own output and writes it again", promise: "the loop is detected and the task ended",
			try: "tail -f of a task's own output file", run: ownOutput},
		{row: 18, name: "terminal", pain: "a question on a terminal cannot be answered", promise: "with --tty it has a terminal, and any client can type into it",
			try: "drover send types a password that is read from /dev/tty", run: typed},
		{row: 18, name: "question", pain: "a command asks for a password and waits forever", promise: "it reads end of file, also from the terminal, and ends; one that waits is reported",
			try: "reads from stdin and from /dev/tty; a question in the background", run: credentials},
		{name: "undone", pain: "stopped tasks come back", promise: "an end is final: nothing restarts by itself",
			try: "an agent and a command are stopped, the host is killed, the next host starts", run: undone},
		{name: "retry", pain: "a start that cannot succeed is repeated forever", promise: "one clear error, once",
			try: "a file that is not a program, and a missing interpreter", run: noRetry},
		{name: "grandchild", pain: "a command is reported as ended while its child holds the pipe, or hangs with it", promise: "the task ends with its leader, and the child is ended",
			try: "a process group leader that exits and leaves sleep in its group", run: heldPipe},
	}
}

func orphans(r *place) string {
	r.Good("run", "-d", "--name", "plain", "--", "sh", "-c", "sleep 4401 & setsid sleep 4402 & exec sleep 4403")
	r.Fifo("go")
	r.Good("run", "-d", "--keep", "--name", "kept", "--", "sh", "-c", "echo before; read x <go; echo after; exit 7")
	r.some(3, "sleep 440")
	r.Must(r.begun("kept"))
	r.kill("host")
	took := r.none("sleep 440")
	r.want("plain", how(r.named("plain")), "killed, host_lost by keeper")
	r.Free("go")
	r.ends(7, "wait", "kept")
	r.want("kept", how(r.named("kept")), "failed, exit by self, exit code 7")
	r.want("its output", r.Good("logs", "kept"), "before\nafter")
	return fmt.Sprintf("3 processes in two sessions gone after %.1f s, of which 2 are promised; the kept one went on and ended with 7", took.Seconds())
}

// reusedNumber works in a namespace, where the next number can be chosen.
func reusedNumber(r *place) string {
	const line = `set -e
drover run -d --keep --name lost -- sleep 4411 >/dev/null
until pid=$(pgrep -f '^sleep 4411'); do :; done
host=$(pgrep -f 'drover host'); keeper=$(pgrep -f 'drover keeper')
kill -9 $keeper $host $pid
while kill -0 $pid 2>/dev/null; do :; done
echo $((pid - 1)) >/proc/sys/kernel/ns_last_pid
sleep 4412 & stranger=$!
echo $pid $stranger
drover stop lost >/dev/null 2>&1 || true
drover inspect lost
kill -0 $stranger && echo the stranger lives
` // with the shell all goes that is in its namespace
	probe := exec.Command("unshare", "-rpf", "--mount-proc", "sh", "-c", "echo 300 >/proc/sys/kernel/ns_last_pid")
	if out, err := probe.CombinedOutput(); err != nil {
		fmt.Printf("SKIPPED: number: no namespace of numbers can be had here: %s\n", strings.TrimSpace(string(out)))
		return "not here: no namespace of numbers"
	}
	cmd := exec.Command("unshare", "-rpf", "--mount-proc", "sh", "-c", line)
	cmd.Dir, cmd.Env = r.Dir, r.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("%v\n%s", err, out)
	}
	numbers := strings.Fields(string(out))
	if numbers[0] != numbers[1] {
		r.Fatalf("the stranger has another number: %s", out)
	}
	r.says("the namespace", string(out), "the stranger lives", `"status": "killed"`)
	return "the stranger with number " + numbers[1] + " lives; the task is killed, " + matched(`"reason": "(\w+)"`, string(out))
}

func reasons(r *place) string {
	want := map[string]string{}
	run := func(name, end string, more ...string) {
		r.Good(append([]string{"run", "-d", "--name", name}, more...)...)
		want[name] = end
	}
	run("exits", "failed exit", "--", "sh", "-c", "exit 7")
	run("late", "failed timeout", "--timeout", "100ms", "--", "sleep", "4421")
	run("hit", "failed signal", "--", "sleep", "4422")
	run("unwanted", "killed stopped", "--", "sleep", "4423")
	r.some(1, "sleep 4422")
	r.Must(syscall.Kill(r.Procs("sleep 4422")[0].PID, syscall.SIGKILL))
	r.Good("stop", "unwanted")
	for name := range want {
		r.Start("wait", name).Code()
	}
	run("orphan", "killed host_lost", "--", "sleep", "4424")
	r.some(1, "sleep 4424")
	r.kill("host")
	r.none("sleep 4424")
	var said []string
	for name, end := range want {
		x := r.named(name)
		if x.Cause == nil || x.Cause.Actor == "" {
			r.Fatalf("%s has no actor", name)
		}
		r.want(name, string(x.Status)+" "+string(x.Cause.Reason), end)
		said = append(said, how(x))
	}
	slices.Sort(said)
	return strings.Join(said, "; ")
}

func flood(r *place) string {
	r.settings(object{"tasks": object{"outputLimitBytes": 1_000_000}})
	r.Good("run", "-d", "--name", "flood", "--", "sh", "-c", "while :; do head -c 100000 /dev/zero; sleep 0.01; done")
	r.Start("wait", "flood").Code()
	x := r.named("flood")
	r.want("flood", string(x.Status)+" "+string(x.Cause.Reason), "failed output_limit")
	r.none("head -c")
	if x.OutputBytes < 1_000_000 || x.OutputBytes > 100_000_000 { // it prints 10 MB in a second, after which it is looked at
		r.Errorf("%d bytes were printed", x.OutputBytes)
	}
	return fmt.Sprintf("failed, output_limit; %d kB are in the file", x.OutputBytes/1000)
}

func quota(r *place) string {
	r.settings(object{"tasks": object{"userQuotaBytes": 2_000_000}})
	r.Good("run", "-d", "--name", "greedy", "--", "sh", "-c", "while :; do head -c 100000 /dev/zero; sleep 0.01; done")
	r.Start("wait", "greedy").Code()
	x := r.named("greedy")
	r.want("greedy", string(x.Status)+" "+string(x.Cause.Reason), "failed output_quota")
	r.none("head -c")
	f := r.Start("run", "-d", "--", "true")
	if f.Code() == 0 || !strings.Contains(f.Stderr(), "userQuotaBytes") {
		r.Errorf("beyond the quota: %s", f)
	}
	r.Must(syscall.Kill(r.Of("host")[0].PID, syscall.SIGTERM)) // a session that is open cannot be removed
	if !waittest.Until(harness.Patience, func() bool { return r.Start("sessions", "rm", string(x.Session)).Code() == 0 }) {
		r.Fatal("the session cannot be removed")
	}
	if !waittest.Until(harness.Patience, func() bool { return r.Start("run", "--", "true").Code() == 0 }) {
		r.Error("nothing starts where there is room")
	}
	return how(x) + "; the next start was refused, and not after sessions rm"
}

func ownOutput(r *place) string {
	line := `echo seed; tail -c +1 -f ` + r.Work + `/state/projects/*/*/tasks/$DROVER_TASK_ID.output`
	r.Good("run", "-d", "--name", "ouroboros", "--", "sh", "-c", line)
	r.Start("wait", "ouroboros").Code()
	x := r.named("ouroboros")
	r.want("ouroboros", string(x.Status)+" "+string(x.Cause.Reason), "failed output_loop")
	r.none("tail -c")
	return fmt.Sprintf("%s, at %d kB", how(x), x.OutputBytes/1000)
}

func typed(r *place) string {
	r.Good("run", "-d", "--tty", "--name", "asks", "--", "sh", "-c", `printf 'Password: ' >/dev/tty; read -r x </dev/tty; echo "got $x"`)
	if !waittest.Until(harness.Patience, func() bool { return strings.Contains(r.Good("logs", "asks"), "Password:") }) {
		r.Fatal("it asks nothing")
	}
	r.Good("send", "asks", "open sesame")
	r.Good("wait", "asks")
	r.says("its output", r.Good("logs", "asks"), "got open sesame")
	return "it was typed from elsewhere, and the command went on"
}

func credentials(r *place) string {
	r.Good("run", "-d", "--name", "reads", "--", "sh", "-c", "printf 'Password: '; read -r x; echo got=$x rc=$?")
	r.Start("wait", "reads").Code()
	r.says("read", r.Good("logs", "reads"), "Password: got= rc=1")
	r.Good("run", "-d", "--name", "tty", "--", "sh", "-c", "read -r x </dev/tty || echo no terminal")
	r.Start("wait", "tty").Code()
	r.says("/dev/tty", r.Good("logs", "tty"), "no terminal")
	m := r.script(map[string][]step{"main": {
		calls("Bash", later(`mkfifo f; printf 'Password for https://example.invalid: '; cat f`)),
		says("started"),
		func(_ context.Context, q *modeltest.Request) modeltest.Answer {
			return modeltest.Call("TaskStop", object{"task_id": matched(`ID: (b[0-9a-z]{8})\b`, r.conversation(q))})
		},
		says("stopped"),
	}})
	r.want("answer", r.Good("-p", "go", anything, `--settings={"tasks":{"stallAfter":"300ms"}}`), "stopped")
	r.says("the model", r.heard(m, "main"), "seems to wait for an answer", "Password for https")
	return "both read nothing and end; the model is told of the one that waits, and stops it"
}

func undone(r *place) string {
	m := r.script(map[string][]step{"general-purpose": {never}})
	r.Good("agent", "run", "-d", "--name", "agent", "general-purpose", "work")
	r.Good("run", "-d", "--keep", "--name", "command", "--", "sh", "-c", "echo begun >>begun; exec sleep 4441")
	r.some(1, "sleep 4441")
	waittest.Until(harness.Patience, func() bool { return m.Count() == 1 })
	r.Good("stop", "agent", "command")
	was := how(r.named("agent")) + "; " + how(r.named("command"))
	r.kill("host")
	r.Good("run", "-d", "--name", "next", "--", "true")
	r.Good("wait", "next")
	r.want("ends", how(r.named("agent"))+"; "+how(r.named("command")), was)
	r.none("sleep 4441")
	begun, err := os.ReadFile(filepath.Join(r.Dir, "begun"))
	r.Must(err)
	r.want("starts", string(begun), "begun\n")
	r.want("requests", m.Count(), 1)
	return "both stay killed by user; 1 start, 1 request"
}

func noRetry(r *place) string {
	r.file("plain", "\x7fnot a program")
	r.file("lost", "#!/no/such/interpreter\n")
	for name, args := range map[string][]string{"plain": {"./plain"}, "lost": {"./lost"}} {
		f := r.Start(append([]string{"run", "--name", name, "--"}, args...)...)
		if f.Code() == 0 || strings.Count(f.Stderr(), "\n") != 1 {
			r.Errorf("%s: %s", name, f)
		}
		r.want(name, string(r.named(name).Status)+" "+string(r.named(name).Cause.Reason), "failed start")
	}
	r.want("tasks", len(r.tasks()), 2)
	return "failed, start, one line each; 1 run each"
}

func heldPipe(r *place) string {
	f := r.ends(0, "run", "--name", "short", "--", "sh", "-c", "sleep 4451 & echo done")
	r.want("output", f.Text(), "done")
	r.none("sleep 4451")
	x := r.named("short")
	r.want("short", how(x), "completed, done by self")
	return "completed with its leader; the child is gone"
}

// receipt is what a stop prints.
func receipt(r *place, id string) (out task.Receipt) {
	r.Helper()
	r.Must(json.Unmarshal([]byte(r.Good("stop", id, "--json")), &out))
	return out
}

// begun waits until a task is known to run: until then the death of its host ends it.
func (r *place) begun(name string) error {
	if !waittest.Until(harness.Patience, func() bool { return r.named(name).Status == task.Running }) {
		return errors.New(name + " does not begin")
	}
	return nil
}
