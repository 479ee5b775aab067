package hook

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

const (
	grace     = 500 * time.Millisecond // between TERM and KILL
	drainWait = time.Second            // for the end of a pipe whose holder could not be found

	maxPrinted = 64 << 20 // bytes; a hook that prints more is ended
)

var errFlood = errors.New("printed more than 64 MiB, and was ended")

// job is one run of a hook.
type job struct {
	r       *Runner
	h       hook
	payload []byte
	ctx     context.Context // ended by its time, its caller or the runner
	cancel  context.CancelCauseFunc
	timer   *time.Timer // set before anybody may let it go

	let    sync.Once
	gone   chan struct{} // closed when it continues in the background
	done   chan struct{} // closed when all of it has ended
	result result        // valid when done
}

// run is the goroutine of the job.
func (j *job) run() {
	defer close(j.done)
	defer j.cancel(nil)
	timeout := fmt.Errorf("did not answer within %v, and was ended", j.h.timeout)
	j.timer = time.AfterFunc(j.h.timeout, func() { j.cancel(timeout) })
	defer j.timer.Stop()
	defer func() {
		select {
		case <-j.gone:
			j.r.returned()
		default:
		}
	}()
	if j.h.async {
		j.release(j.h.timeout)
	}
	if j.h.call != nil {
		j.result = j.callback()
		return
	}
	j.result = j.command()
}

// release lets the job go on in the background for a time.
func (j *job) release(d time.Duration) {
	j.let.Do(func() {
		if j.r.release() {
			j.timer.Reset(d)
			close(j.gone)
		}
	})
}

func (j *job) callback() result {
	out, err := j.h.call(j.ctx, j.payload)
	switch {
	case j.ctx.Err() != nil:
		return result{err: context.Cause(j.ctx)}
	case err != nil:
		return result{err: fmt.Errorf("failed: %w", err)}
	}
	return result{stdout: string(out)}
}

// command runs the command and returns when nothing of it is left.
func (j *job) command() result {
	if j.ctx.Err() != nil {
		return result{err: context.Cause(j.ctx)}
	}
	mark := "hook_" + rand.Text()
	g, p, bounds, err := j.start(mark)
	if err != nil {
		return result{err: fmt.Errorf("could not be started: %w", err)}
	}
	defer p.Close()
	defer g.Close()
	flows := j.follow(p)
	exit, err := g.Wait(j.ctx)
	ending := process.Ending{Grace: grace, Mark: mark, Table: &j.r.table, ByItself: err == nil}
	report := g.End(context.Background(), ending)
	_ = p.In.SetWriteDeadline(time.Unix(1, 0)) // all its readers have ended
	p.Expire(drainWait)                        // a process that left the group may hold a stream
	flows.group.Wait()
	g.Reap()
	res := result{code: exit.Code, stdout: flows.stdout.text(), stderr: flows.stderr.text(), long: flows.stdout.object}
	switch {
	case err != nil && j.ctx.Err() != nil:
		res.err = context.Cause(j.ctx)
	case err != nil:
		res.err = err
	case exit.Signal != 0:
		res.code = 128 + int(exit.Signal)
	}
	for _, s := range []*sink{&flows.stdout, &flows.stderr} {
		if s.over && s.spill != nil {
			res.notes = append(res.notes, fmt.Sprintf("%s printed %d bytes to %s: %s", j.h.label(), s.total, s.name, s.where()))
		}
	}
	res.notes = append(res.notes, j.walls(bounds, res)...)
	if text := report.Note(); text != "" {
		res.notes = append(res.notes, j.h.label()+": "+text)
	}
	for _, l := range report.Left {
		res.notes = append(res.notes, fmt.Sprintf("%s left process %d (%s) behind: %s", j.h.label(), l.PID, l.Command, l.Why))
	}
	return res
}

// start starts the command. bounds are nil if it has none.
func (j *job) start(mark string) (g *process.Group, p process.Streams, bounds process.Bounds, err error) {
	if j.r.base.Ready != nil {
		if err := j.r.base.Ready(); err != nil {
			return nil, p, nil, err
		}
	}
	self, err := j.r.self.Identity()
	if err != nil {
		return nil, p, nil, err
	}
	if j.h.bounded && j.r.base.Bound != nil {
		if bounds, err = j.r.base.Bound(j.h.command); err != nil {
			return nil, p, nil, err
		}
	}
	env := append(slices.Clone(j.r.env), process.MarkTask+"="+mark, process.MarkHost+"="+self.Mark())
	for _, kv := range j.h.env {
		key, _, _ := strings.Cut(kv, "=")
		env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, key+"=") })
		env = append(env, kv)
	}
	c := process.Command{Args: []string{"bash", "-c", j.h.command}, Dir: j.r.dir(j.h), Env: env, Session: true}
	if bounds != nil {
		bounds.Apply(&c)
	}
	g, p, err = process.StartPiped(c)
	return g, p, bounds, err
}

// walls says what the bounds of a hook may have kept it from, if it has failed, and how to change that.
func (j *job) walls(bounds process.Bounds, res result) []string {
	if bounds == nil || res.code == 0 && res.err == nil {
		return nil
	}
	refused := bounds.Refused()
	if len(refused) == 0 && (res.code == 2 || res.err != nil) {
		return nil // that is an answer, or has another reason
	}
	text := j.h.label() + " ran in the sandbox"
	if len(refused) > 0 {
		text += ", which did not let it through: " + excerpt.Line(strings.Join(refused, "; "), 500)
	}
	return []string{text + fmt.Sprintf(" (%q in the setting sandbox.outside lets it run outside; see docs/hooks.md)", Outside+j.h.command)}
}

// Outside begins the name of a hook in the setting sandbox.outside, before its command.
const Outside = "hook:"

// flows are the goroutines that write and read a hook's streams.
type flows struct {
	stdout, stderr sink
	group          sync.WaitGroup // one per stream; command waits for them
}

// follow feeds the hook and hears it.
func (j *job) follow(p process.Streams) *flows {
	f := &flows{stdout: sink{name: "stdout", spill: j.r.base.Spill}, stderr: sink{name: "stderr", spill: j.r.base.Spill}}
	var printed atomic.Int64
	count := func(n int) {
		if printed.Add(int64(n)) > maxPrinted {
			j.cancel(errFlood)
		}
	}
	f.group.Go(func() {
		_, _ = p.In.Write(j.payload) // a hook need not read it
		_ = p.In.Close()
	})
	f.group.Go(func() { f.stdout.copy(p.Out, count, j.firstLine) })
	f.group.Go(func() { f.stderr.copy(p.Err, count, nil) })
	return f
}

// firstLine releases a hook whose first line says that it continues in the background.
func (j *job) firstLine(line []byte) {
	replies := read(j.h, result{stdout: string(line)}).replies
	at := slices.IndexFunc(replies, func(a reply) bool { return a.Async })
	if at < 0 {
		return
	}
	d := j.h.timeout
	if ms := replies[at].AsyncTimeout; ms > 0 {
		d = min(time.Duration(min(ms, maxTimeout.Milliseconds()))*time.Millisecond, maxTimeout)
	}
	j.release(d)
}
