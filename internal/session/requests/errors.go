package requests

import (
	"errors"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Refusal converts an error of the engine, or of the agents, into one for the user.
func Refusal(err error) *control.Error { return tasks.Refusal(known(err)) }

// known converts an error of the agents into one for the user, and leaves others as they are.
func known(err error) error {
	var kind *subagent.UnknownTypeError
	var spent *usage.BudgetError
	switch {
	case errors.As(err, &spent):
		return control.Refuse(control.Unavailable, err.Error(), "")
	case errors.As(err, &kind):
		return control.Refuse(control.Invalid, err.Error(), "")
	}
	return err
}

// shown converts the error of a call into one for the user.
func shown(r task.Record, err error) (task.Record, error) {
	if err != nil {
		return r, Refusal(err)
	}
	return r, nil
}
