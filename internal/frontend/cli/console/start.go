package console

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// StartDetached starts a task in the detached host of the folder.
func (a *Console) StartDetached(ctx context.Context, r control.StartRequest) (task.Record, error) {
	return Ask(ctx, a.Background, func(api control.API) (task.Record, error) { return a.StartOne(ctx, api, r) })
}

// StartOne starts one task.
func (a *Console) StartOne(ctx context.Context, api control.API, r control.StartRequest) (task.Record, error) {
	started, err := api.Start(ctx, []control.StartRequest{r})
	switch {
	case err != nil:
		return task.Record{}, err
	case started[0].Error != nil:
		return task.Record{}, started[0].Error
	}
	if said := started[0].Task.Renamed(); said != "" {
		a.Hint(said)
	}
	return *started[0].Task, nil
}

// PrintDetached starts a task in the detached host of the folder and prints its ID.
func (a *Console) PrintDetached(ctx context.Context, r control.StartRequest) error {
	rec, err := a.StartDetached(ctx, r)
	if err != nil {
		return err
	}
	return a.Println(rec.ID)
}

// InSession opens a session in this process for do, and notes its questions meanwhile.
func (a *Console) InSession(ctx context.Context, o Opening, do func(context.Context, control.API) error) error {
	return a.Here(ctx, o, func(ctx context.Context, s control.API) error {
		if o.Answerable {
			defer a.SayQuestions(ctx, s, nil)()
		}
		return do(ctx, s)
	})
}

// AnswerOf waits for a task and returns its answer. It notes the tasks that were stopped with it.
func (a *Console) AnswerOf(ctx context.Context, s control.API, id task.ID) (string, error) {
	ref := string(id)
	if _, err := s.Wait(ctx, control.WaitRequest{Refs: []string{ref}}); err != nil {
		return "", err
	}
	got, err := control.WholeResult(ctx, s, ref)
	if err != nil {
		return "", err
	}
	for _, t := range got.Task.LeftTasks {
		a.Hint(fmt.Sprintf("when agent %s ended, %s %s (%s) was %s: see %s",
			ref, t.Noun, t.ID, t.About, t.Status, t.OutputFile))
	}
	switch {
	case got.Task.Status == task.Killed:
		return "", &ExitError{Code: codeStopped, Err: fmt.Errorf("agent %s was stopped", ref)}
	case got.Task.Status == task.Failed:
		return "", errors.New(got.Task.Error)
	}
	return got.Text, nil
}

// Title is how a listing shows the session of a prompt.
func Title(prompt string) string {
	text := strings.Join(strings.Fields(prompt), " ")
	if r := []rune(text); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return text
}
