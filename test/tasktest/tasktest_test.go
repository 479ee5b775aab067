package tasktest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/tasktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asker is the smallest driver that asks: it prints for each thing it may do.
type asker struct{}

type wish struct {
	N    int  `json:"n"`    // questions at once
	Long bool `json:"long"` // goes on until it is ended
}

func (asker) Kind() task.Kind { return task.LocalAgent }

func (asker) Check(input json.RawMessage) error {
	var w *wish
	if err := json.Unmarshal(input, &w); err != nil || w == nil || w.N < 1 {
		return errors.New("n: how many questions")
	}
	return nil
}

func (asker) Run(ctx context.Context, h task.Host) (task.Result, error) {
	var w wish
	if err := json.Unmarshal(h.Input(), &w); err != nil {
		return task.Result{}, err
	}
	if ctx.Err() != nil {
		return task.Result{}, context.Cause(ctx)
	}
	var calls sync.WaitGroup
	errs := make([]error, w.N)
	for i := range errs {
		calls.Go(func() { errs[i] = do(ctx, h, w.Long) })
	}
	calls.Wait()
	return task.Result{}, errors.Join(errs...)
}

func do(ctx context.Context, h task.Host, long bool) error {
	if long {
		fmt.Fprintln(h.Output(), "at work")
		<-ctx.Done()
		return context.Cause(ctx)
	}
	reply, err := h.Ask(ctx, task.Question{Tool: "Print", Until: time.Now().Add(time.Minute)})
	if err != nil || !reply.Allow {
		return err
	}
	_, err = fmt.Fprintln(h.Output(), "it is done")
	return err
}

// quick allows itself what it asks for, so that the other cases need nobody.
type quick struct{ asker }

func (quick) Run(_ context.Context, h task.Host) (task.Result, error) {
	_, err := fmt.Fprintln(h.Output(), "it is done")
	return task.Result{}, err
}

func TestAsks(t *testing.T) {
	tasktest.Run(t, tasktest.Config{
		Long: func(*testing.T) (task.Driver, json.RawMessage) {
			return asker{}, json.RawMessage(`{"n":1,"long":true}`)
		},
		Short: func(*testing.T) (task.Driver, json.RawMessage) { return quick{}, json.RawMessage(`{"n":1}`) },
		Asks: func(_ *testing.T, n int) (task.Driver, json.RawMessage) {
			return asker{}, json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))
		},
		Prints: "it is done",
	})
}
