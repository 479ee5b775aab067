package control

import (
	"context"
	"iter"
)

// Refusing is the part of [API] about agents and schedules, for a session without them. The function returns why it
// cannot be done; what names it, as in "prompt".
type Refusing func(what string) error

// Watch yields the refusal.
func (f Refusing) Watch(context.Context, WatchRequest) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) { yield(Piece{}, f("attach")) }
}

// Schedules is refused.
func (f Refusing) Schedules(context.Context, ScheduleRequest) (Schedules, error) {
	return Schedules{}, f("use the schedules of the project")
}

// Forward is refused.
func (f Refusing) Forward(context.Context, ForwardRequest) (Forwards, error) {
	return Forwards{}, f("forward a port")
}

// Configure is refused.
func (f Refusing) Configure(context.Context, ConfigureRequest) (Settings, error) {
	return Settings{}, f("change the settings")
}

// Environment is refused.
func (f Refusing) Environment(context.Context) (Environment, error) {
	return Environment{}, f("list what an agent works with")
}

// Commands is refused.
func (f Refusing) Commands(context.Context) (Commands, error) {
	return Commands{}, f("list commands")
}

// Prompt is refused.
func (f Refusing) Prompt(context.Context, PromptRequest) error { return f("prompt") }
