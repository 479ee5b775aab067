package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/task"
)

var byPerson = task.Cause{Actor: task.ByUser}

// outcome is what a driver got for its question.
type outcome struct {
	reply task.Reply
	err   error
}

// asking is a driver that asks n questions at once and tells what it got.
func asking(n int, q task.Question, got chan<- outcome) work {
	return func(ctx context.Context, h task.Host) (task.Result, error) {
		var calls sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			calls.Go(func() {
				q := q
				q.Input = json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))
				r, err := h.Ask(ctx, q)
				got <- outcome{r, err}
				errs[i] = err
			})
		}
		calls.Wait()
		return task.Result{}, errors.Join(errs...)
	}
}

func open(s *Supervisor) []task.Question {
	questions, _ := s.Questions()
	return questions
}

// last is the record of a task as the log has it.
func (l *memLog) last(id task.ID) (rec task.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.Task.ID == id {
			rec = e.Task
		}
	}
	return rec
}

func TestAskAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		got := make(chan outcome, 2)
		rec := start(t, s, asking(1, task.Question{Tool: "Bash", Reason: "not in the rules", Agent: "docs"}, got), task.Spec{})
		synctest.Wait()
		asked := open(s)
		if len(asked) != 1 || asked[0].Task != rec.ID || asked[0].Digest == "" || asked[0].At.IsZero() || !strings.HasPrefix(asked[0].ID, "q") {
			t.Fatalf("open: %+v", asked)
		}
		q := asked[0]
		for where, r := range map[string]task.Record{"log": log.last(rec.ID), "listing": func() task.Record { r, _ := s.Get(rec.ID); return r }()} {
			if !r.AwaitingApproval || len(r.Questions) != 1 || r.Questions[0].ID != q.ID || r.Status != task.Running {
				t.Errorf("the %s does not show the question: %+v", where, r)
			}
		}

		var stale *StaleError
		var wrong *task.ReplyError
		if err := s.Decide(t.Context(), q.ID, "", task.Reply{Allow: true}, byPerson); !errors.As(err, &stale) {
			t.Errorf("without a digest: %v", err)
		}
		if err := s.Decide(t.Context(), q.ID, strings.Repeat("0", 64), task.Reply{Allow: true}, byPerson); !errors.As(err, &stale) {
			t.Errorf("with the digest of another request: %v", err)
		}
		if err := s.Decide(t.Context(), "q00000000", q.Digest, task.Reply{Allow: true}, byPerson); !errors.Is(err, ErrNoQuestion) {
			t.Errorf("to an unknown question: %v", err)
		}
		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true, Text: "x"}, byPerson); !errors.As(err, &wrong) {
			t.Errorf("with a text: %v", err)
		}
		if len(open(s)) != 1 || len(log.verbs(rec.ID)) != 3 {
			t.Fatalf("a refused answer changed something: %v", log.verbs(rec.ID))
		}

		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true, Input: json.RawMessage(`{"n":7}`)}, byPerson); err != nil {
			t.Fatal(err)
		}
		if o := <-got; o.err != nil || !o.reply.Allow || string(o.reply.Input) != `{"n":7}` {
			t.Errorf("the driver got %+v", o)
		}
		if _, err := s.Wait(t.Context(), []task.ID{rec.ID}, false); err != nil {
			t.Fatal(err)
		}
		end := log.last(rec.ID)
		if a := end.LastAnswer; end.Status != task.Completed || a == nil || a.ID != q.ID || !a.Allow || !a.Changed ||
			a.Cause.Actor != task.ByUser || a.Cause.Reason != task.ReasonAnswered || end.AwaitingApproval || end.Questions != nil {
			t.Errorf("ended as %+v, answer %+v", end, a)
		}
		if want := []task.Verb{task.Create, task.Begin, task.Ask, task.Answer, task.Complete}; !slices.Equal(log.verbs(rec.ID), want) {
			t.Errorf("the story is %v", log.verbs(rec.ID))
		}
		err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{}, byPerson)
		if !errors.As(err, &stale) || !strings.Contains(err.Error(), "allowed by user") {
			t.Errorf("a second answer: %v", err)
		}
	})
}

// Nobody answers: the time makes a denial that says so, and who comes after it
// is told.
func TestAskUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Log: log})
		defer s.Close()
		got := make(chan outcome, 1)
		began := time.Now()
		rec := start(t, s, asking(1, task.Question{Tool: "Bash", Until: began.Add(10 * time.Minute)}, got), task.Spec{})
		synctest.Wait()
		q := open(s)[0]
		o := <-got
		if o.err != nil || o.reply.Allow || o.reply.Reason != "nobody answered within 10m0s" || time.Since(began) != 10*time.Minute {
			t.Errorf("after %s the driver got %+v", time.Since(began), o)
		}
		if _, err := s.Wait(t.Context(), []task.ID{rec.ID}, false); err != nil {
			t.Fatal(err)
		}
		if a := log.last(rec.ID).LastAnswer; a.Allow || a.Cause.Actor != task.ByRuntime || a.Cause.Reason != task.ReasonUnanswered || a.Cause.Detail != o.reply.Reason {
			t.Errorf("recorded as %+v", a)
		}
		var stale *StaleError
		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson); !errors.As(err, &stale) || !strings.Contains(err.Error(), "nobody answered") {
			t.Errorf("a late answer: %v", err)
		}
	})
}

// Several questions of one run: each gets its own answer, eight are open at
// once, and the fact falls with the last.
func TestAskSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Log: log})
		defer s.Close()
		const n = task.MaxQuestions + 3
		got := make(chan outcome, n)
		rec := start(t, s, asking(n, task.Question{Tool: "Bash"}, got), task.Spec{})
		synctest.Wait()
		if len(open(s)) != task.MaxQuestions {
			t.Fatalf("%d are open", len(open(s)))
		}
		for i := range n {
			r, _ := s.Get(rec.ID)
			asked := open(s)
			if !r.AwaitingApproval || len(r.Questions) != len(asked) || len(asked) != min(task.MaxQuestions, n-i) {
				t.Fatalf("awaiting %v with %d in the record and %d open", r.AwaitingApproval, len(r.Questions), len(asked))
			}
			q := asked[len(asked)/2]
			if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true, Input: q.Input}, byPerson); err != nil {
				t.Fatal(err)
			}
			if o := <-got; o.err != nil || string(o.reply.Input) != string(q.Input) {
				t.Errorf("the answer to %s came as %+v", q.Input, o)
			}
			synctest.Wait()
		}
		if r := log.last(rec.ID); r.Status != task.Completed || r.AwaitingApproval {
			t.Errorf("ended as %+v", r)
		}
	})
}

// A stop drops what was asked at once, for everybody.
func TestAskStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Log: log})
		defer s.Close()
		got := make(chan outcome, 2)
		rec := start(t, s, asking(2, task.Question{Tool: "Bash", Until: time.Now().Add(time.Hour)}, got), task.Spec{})
		synctest.Wait()
		q := open(s)[0]
		receipt, err := s.Stop(t.Context(), []task.ID{rec.ID}, byUser)
		if err != nil || receipt.Stopped[0].Status != task.Killed {
			t.Fatal(receipt, err)
		}
		for range 2 {
			if o := <-got; !errors.Is(o.err, task.ErrStopRequested) || o.reply.Allow {
				t.Errorf("the driver got %+v", o)
			}
		}
		var stale *StaleError
		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson); !errors.As(err, &stale) {
			t.Errorf("an answer after the stop: %v", err)
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, e := range log.entries {
			if e.Verb == task.RequestStop && (e.Task.AwaitingApproval || e.Task.Questions != nil) {
				t.Error("a task that is being stopped is still awaiting approval")
			}
		}
		if len(open(s)) != 0 {
			t.Error("questions are left open")
		}
	})
}

// A turn that is broken off takes its question back, and its task goes on.
func TestAskInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Log: log})
		defer s.Close()
		enough := errors.New("enough")
		rec := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			turn, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(enough) })
			if _, err := h.Ask(turn, task.Question{Tool: "Bash"}); !errors.Is(err, enough) {
				t.Errorf("broken off with %v", err)
			}
			if r := h.Record(); r.AwaitingApproval || r.LastAnswer.Cause.Reason != task.ReasonWithdrawn {
				t.Errorf("after that: %+v", r)
			}
			// A question that nobody of the run waits for ends with the run.
			go func() { _, _ = h.Ask(context.Background(), task.Question{Tool: "Bash"}) }()
			synctest.Wait()
			return task.Result{}, nil
		}), task.Spec{})
		if _, err := s.Wait(t.Context(), []task.ID{rec.ID}, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r := log.last(rec.ID); r.Status != task.Completed || r.AwaitingApproval || r.Questions != nil || len(open(s)) != 0 {
			t.Errorf("%+v, open %+v", r, open(s))
		}
	})
}

// While one agent waits for a person, the next has its place.
func TestAskPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: &memLog{}, Pools: map[string]Pool{"p": {Size: 1}}})
		defer s.Close()
		got := make(chan outcome, 1)
		first := start(t, s, asking(1, task.Question{Tool: "Bash"}, got), task.Spec{Pool: "p"})
		synctest.Wait()
		release := make(chan struct{})
		second := start(t, s, work(func(context.Context, task.Host) (task.Result, error) { <-release; return task.Result{}, nil }), task.Spec{Pool: "p"})
		synctest.Wait()
		if r, _ := s.Get(second.ID); r.Status != task.Running {
			t.Fatalf("the next is %s", r.Status)
		}
		q := open(s)[0]
		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-got:
			t.Error("two are at work in a pool of one")
		default:
		}
		close(release)
		if _, err := s.Wait(t.Context(), []task.ID{first.ID, second.ID}, false); err != nil {
			t.Fatal(err)
		}
	})
}

// A question of the session itself is in no record, and is otherwise the same.
func TestAskSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		got := make(chan outcome, 3)
		ask := func(asker task.ID, until time.Duration) {
			q := task.Question{Tool: "Bash"}
			if until > 0 {
				q.Until = time.Now().Add(until)
			}
			r, err := s.Ask(t.Context(), asker, q)
			got <- outcome{r, err}
		}
		go ask("s00000000", 0)
		synctest.Wait()
		q := open(s)[0]
		if q.Task != "s00000000" {
			t.Errorf("asked by %s", q.Task)
		}
		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson); err != nil {
			t.Fatal(err)
		}
		if o := <-got; o.err != nil || !o.reply.Allow {
			t.Errorf("got %+v", o)
		}
		var stale *StaleError
		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson); !errors.As(err, &stale) {
			t.Errorf("a second answer: %v", err)
		}
		ask("s00000000", time.Minute)
		if o := <-got; o.err != nil || o.reply.Allow || o.reply.Reason == "" {
			t.Errorf("nobody answered, and it got %+v", o)
		}
		ask("a00000000", 0)
		if o := <-got; !errors.Is(o.err, ErrUnknown) {
			t.Errorf("a stranger asked and got %+v", o)
		}
		// As a task, the main agent asks like one.
		main := start(t, s, work(until), task.Spec{ID: "s00000000"})
		synctest.Wait()
		go ask("s00000000", 0)
		synctest.Wait()
		if r, _ := s.Get(main.ID); !r.AwaitingApproval {
			t.Error("the task of the main agent is not awaiting approval")
		}
		s.Close()
		if o := <-got; !errors.Is(o.err, task.ErrClosing) {
			t.Errorf("at the close it got %+v", o)
		}
		if r := log.last(main.ID); r.AwaitingApproval || r.Status != task.Killed {
			t.Errorf("after the close: %+v", r)
		}
	})
}

// Whoever follows the questions is woken by each change, and by nothing else.
func TestAwaitQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: &memLog{}})
		defer s.Close()
		_, version := s.Questions()
		woken := make(chan []task.Question)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(woken)
			for version := version; s.AwaitQuestions(ctx, version) == nil; {
				var now []task.Question
				now, version = s.Questions()
				woken <- now
			}
		}()
		synctest.Wait()
		got := make(chan outcome, 1)
		start(t, s, asking(1, task.Question{Tool: "Bash"}, got), task.Spec{})
		var seen []task.Question
		for len(seen) == 0 {
			seen = <-woken
		}
		if err := s.Decide(t.Context(), seen[0].ID, seen[0].Digest, task.Reply{}, byPerson); err != nil {
			t.Fatal(err)
		}
		for len(seen) > 0 {
			seen = <-woken
		}
		synctest.Wait()
		select {
		case <-woken:
			t.Error("woken although nothing changed")
		default:
		}
		cancel()
		for range woken { // nothing but its end
		}
	})
}

// The answer, the stop, the time-out and the natural end come at the same
// moment: the question has one outcome, the log tells the one that the driver
// got, and nothing stays open.
func TestAskRaces(t *testing.T) {
	log := &memLog{}
	s := New(Config{Log: log})
	defer s.Close()
	for i := range 400 {
		got := make(chan outcome, 1)
		finish := make(chan struct{})
		rec := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			asked := make(chan outcome, 1)
			go func() {
				r, err := h.Ask(ctx, task.Question{Tool: "Bash", Until: time.Now().Add(time.Duration(i%4) * 100 * time.Microsecond)})
				asked <- outcome{r, err}
				got <- outcome{r, err}
			}()
			select {
			case o := <-asked:
				return task.Result{}, o.err
			case <-finish:
				return task.Result{}, nil
			}
		}), task.Spec{})
		var race sync.WaitGroup
		var decided, second error
		race.Go(func() {
			for {
				for _, q := range open(s) {
					if q.Task == rec.ID {
						decided = s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson)
						second = s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson)
						return
					}
				}
				if r, _ := s.Get(rec.ID); r.Status.Terminal() || r.LastAnswer != nil || r.Stopping {
					decided, second = ErrNoQuestion, ErrNoQuestion
					return
				}
			}
		})
		race.Go(func() {
			if i%3 == 0 {
				_, _ = s.Stop(t.Context(), []task.ID{rec.ID}, byUser) // it may have ended
			}
		})
		race.Go(func() {
			if i%5 == 0 {
				close(finish)
			}
		})
		race.Wait()
		if _, err := s.Wait(t.Context(), []task.ID{rec.ID}, false); err != nil {
			t.Fatal(err)
		}
		o := <-got
		end := log.last(rec.ID)
		if end.AwaitingApproval || end.Questions != nil || log.sane(rec.ID) != nil {
			t.Fatalf("left as %+v", end)
		}
		if second == nil {
			t.Fatal("a second answer was taken")
		}
		allowed := end.LastAnswer != nil && end.LastAnswer.Allow
		if (decided == nil) != allowed || o.reply.Allow != allowed {
			t.Fatalf("the answer was taken: %v (%v), the log says %+v, the driver got %+v", decided == nil, decided, end.LastAnswer, o)
		}
		if answers := count(log.verbs(rec.ID), task.Answer); answers > 1 {
			t.Fatalf("%d answers to one question", answers)
		}
	}
	if left := open(s); len(left) != 0 {
		t.Errorf("open: %+v", left)
	}
}

func count(verbs []task.Verb, v task.Verb) (n int) {
	for _, one := range verbs {
		if one == v {
			n++
		}
	}
	return n
}

// An answer that could not be written was not given: the question stays open and
// can be answered again.
func TestAskFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk full")
		var broken atomic.Bool
		log := &memLog{fail: func(int) error {
			if broken.Load() {
				return full
			}
			return nil
		}}
		s := New(Config{Log: log})
		defer s.Close()
		got := make(chan outcome, 1)
		start(t, s, asking(1, task.Question{Tool: "Bash"}, got), task.Spec{})
		synctest.Wait()
		q := open(s)[0]
		broken.Store(true)
		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson); !errors.Is(err, full) {
			t.Errorf("decided on a full disk: %v", err)
		}
		synctest.Wait()
		if len(got) != 0 || len(open(s)) != 1 {
			t.Fatal("an answer that nobody wrote was given")
		}
		broken.Store(false)
		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson); err != nil {
			t.Fatal(err)
		}
		if o := <-got; !o.reply.Allow {
			t.Errorf("got %+v", o)
		}
		// A question that cannot be written is no permission.
		start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			broken.Store(true)
			r, err := h.Ask(ctx, task.Question{Tool: "Bash"})
			broken.Store(false)
			got <- outcome{r, err}
			return task.Result{}, nil
		}), task.Spec{})
		if o := <-got; !errors.Is(o.err, full) || o.reply.Allow || len(open(s)) != 0 {
			t.Errorf("asked on a full disk: %+v, open %+v", o, open(s))
		}
	})
}

// What the host that died had asked is gone with it: also where the work itself
// goes on, nothing stays awaiting.
func TestAskAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		q := task.Question{ID: "q00000001", Digest: "d", Tool: "Bash"}
		now := time.Now()
		dead := task.Record{ID: "a00000001", Run: "r1", Kind: task.LocalAgent, Status: task.Running, StartTime: &now, AwaitingApproval: true, Questions: []task.Question{q}}
		kept := dead
		kept.ID, kept.Run, kept.Keep, kept.Process = "a00000002", "r2", true, &task.Process{PID: 1}
		if err := s.Adopt(t.Context(), []Old{{Born: 1, Task: dead}, {Born: 2, Task: kept}}, func(task.Kind) task.Driver { return work(until) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, id := range []task.ID{dead.ID, kept.ID} {
			if r, _ := s.Get(id); r.AwaitingApproval || r.Questions != nil {
				t.Errorf("%s is still awaiting: %+v", id, r)
			}
		}
		if r, _ := s.Get(kept.ID); r.Status != task.Running || r.LastAnswer.Allow || r.LastAnswer.Cause.Reason != task.ReasonWithdrawn {
			t.Errorf("kept work is %+v", r)
		}
		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson); !errors.Is(err, ErrNoQuestion) {
			t.Errorf("an answer to the dead: %v", err)
		}
	})
}

// A message goes to whoever is here only.
func TestPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		rec := start(t, s, work(instant), task.Spec{})
		if _, err := s.Wait(t.Context(), []task.ID{rec.ID}, false); err != nil {
			t.Fatal(err)
		}
		for _, to := range []task.ID{"s00000000", rec.ID} { // who has ended may have a further run
			m := task.Message{To: to, From: "lead", Kind: task.PlainMessage, Text: "hello"}
			if seq, err := s.Post(t.Context(), m); err != nil || seq == 0 || log.letters[len(log.letters)-1].At.IsZero() {
				t.Errorf("to %s: %d, %v, letters %+v", to, seq, err, log.letters)
			}
		}
		if _, err := s.Post(t.Context(), task.Message{To: "a00000000", From: "lead", Kind: task.PlainMessage, Text: "hello"}); !errors.Is(err, ErrUnknown) {
			t.Errorf("to a stranger: %v", err)
		}
		if _, err := s.Post(t.Context(), task.Message{To: rec.ID, From: "lead", Kind: task.PlainMessage}); err == nil {
			t.Error("an empty message was sent")
		}
		if len(log.letters) != 2 {
			t.Errorf("%d messages", len(log.letters))
		}
	})
}

// What a root may start in a session is counted over a restart and over further
// runs, and an adopted task keeps its priority.
func TestLimitsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log, Pools: map[string]Pool{"p": {Size: 5, PerRoot: 3}}})
		defer s.Close()
		old := []Old{
			{Born: 1, Task: task.Record{ID: "a00000001", Run: "r1", Kind: task.LocalAgent, Status: task.Completed, Owner: "s00000000", Pool: "p"}},
			{Born: 2, Task: task.Record{ID: "a00000002", Run: "r2", Kind: task.LocalAgent, Status: task.Running, Owner: "s00000000", Parent: "a00000001", Pool: "p",
				Backgrounded: true, Priority: task.Next}},
		}
		if err := s.Adopt(t.Context(), old, func(task.Kind) task.Driver { return nil }); err != nil {
			t.Fatal(err)
		}
		if n := log.entries[0].Notification; n.Priority != task.Next {
			t.Errorf("the notification of an adopted task: %+v", n)
		}
		spec := task.Spec{Owner: "s00000000", Pool: "p"}
		if _, err := s.Resume(t.Context(), "a00000001", work(instant), spec); err != nil {
			t.Fatal(err)
		}
		var limit *LimitError
		if _, err := s.Start(t.Context(), work(instant), spec); !errors.As(err, &limit) || limit.Limit != "per_root" {
			t.Errorf("a fourth start: %v", err)
		}
		synctest.Wait()
		if _, err := s.Resume(t.Context(), "a00000001", work(instant), spec); !errors.As(err, &limit) || limit.Limit != "per_root" {
			t.Errorf("a fourth run: %v", err)
		}
		if _, err := s.Start(t.Context(), work(instant), task.Spec{Owner: "s00000009", Pool: "p"}); err != nil {
			t.Errorf("of another root: %v", err)
		}
	})
}

// Of two who answer the session at the same moment, and of the time, one wins.
func TestAskSessionRaces(t *testing.T) {
	s := New(Config{Session: "s00000000", Log: &memLog{}})
	defer s.Close()
	for i := range 300 {
		got := make(chan outcome, 1)
		waits, over := context.WithCancel(t.Context()) // until its time is up
		go func() {
			r, err := s.Ask(t.Context(), "s00000000", task.Question{Tool: "Bash", Until: time.Now().Add(time.Duration(i%3+1) * 100 * time.Microsecond)})
			got <- outcome{r, err}
			over()
		}()
		var q task.Question
		for version := int64(-1); q.ID == "" && s.AwaitQuestions(waits, version) == nil; {
			var now []task.Question
			if now, version = s.Questions(); len(now) > 0 {
				q = now[0]
			}
		}
		var o outcome
		taken := make([]error, 2)
		if q.ID != "" {
			var clients sync.WaitGroup
			start := make(chan struct{})
			for n := range taken {
				clients.Go(func() {
					<-start
					reply := []task.Reply{{Allow: true}, {Reason: "second"}}[n]
					taken[n] = s.Decide(t.Context(), q.ID, q.Digest, reply, byPerson)
				})
			}
			close(start)
			clients.Wait()
			o = <-got
			if taken[0] == nil && taken[1] == nil {
				t.Fatal("two answers were taken")
			}
			if o.err != nil || o.reply.Allow != (taken[0] == nil) || (o.reply.Reason == "second") != (taken[1] == nil) {
				t.Fatalf("taken %v, told %+v", taken, o)
			}
			continue
		}
		if o = <-got; o.err != nil || o.reply.Allow {
			t.Fatalf("nobody answered: %+v", o)
		}
	}
}

// A parent that is being stopped waits for its children first: an answer must
// not let it go on to anything new meanwhile.
func TestAskFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: &memLog{}})
		defer s.Close()
		got := make(chan outcome, 1)
		slow := make(chan struct{})
		rec := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			_, err := h.Spawn(ctx, work(func(ctx context.Context, _ task.Host) (task.Result, error) {
				<-ctx.Done()
				<-slow
				return task.Result{}, context.Cause(ctx)
			}), task.Spec{})
			if err != nil {
				return task.Result{}, err
			}
			return asking(1, task.Question{Tool: "Bash"}, got)(ctx, h)
		}), task.Spec{})
		synctest.Wait()
		q := open(s)[0]
		stopped := make(chan error, 1)
		go func() {
			_, err := s.Stop(t.Context(), []task.ID{rec.ID}, byUser)
			stopped <- err
		}()
		synctest.Wait() // for the child, which takes its time
		var stale *StaleError
		if err := s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, byPerson); !errors.As(err, &stale) {
			t.Errorf("an answer in a tree that is being stopped: %v", err)
		}
		close(slow)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if o := <-got; o.reply.Allow || !errors.Is(o.err, task.ErrStopRequested) {
			t.Errorf("the parent got %+v", o)
		}
	})
}
