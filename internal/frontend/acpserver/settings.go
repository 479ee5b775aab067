package acpserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/api/control"
)

// IDs of the options of a session.
const (
	modeOption    = "mode"
	modelOption   = "model"
	effortOption  = "effort"
	sessionOption = "session_mode"

	defaultEffort = "default"
)

// modes are the permission modes, as the client shows them.
func modes() []acp.SessionMode {
	mode := func(id, name, about string) acp.SessionMode {
		return acp.SessionMode{Id: acp.SessionModeId(id), Name: name, Description: &about}
	}
	return []acp.SessionMode{
		mode("default", "Ask", "reading in the folder is allowed; what no rule and no sandbox covers is asked about"),
		mode("acceptEdits", "Accept edits", "edits in the folder are allowed too"),
		mode("plan", "Plan", "reading only, until you approve a plan"),
		mode("dontAsk", "Do not ask", "what would be asked about is denied"),
		mode("bypassPermissions", "Bypass permissions", "what no rule denies is allowed"),
	}
}

// offered is what the user of a session may choose from, and has chosen.
type offered struct {
	now    control.Settings
	models []string // the names that may be chosen
}

// offer reads it.
func (s *session) offer(ctx context.Context) (offered, error) {
	now, err := s.open.Configure(ctx, control.ConfigureRequest{})
	if err != nil {
		return offered{}, err
	}
	env, err := s.open.Environment(ctx)
	if err != nil {
		return offered{}, err
	}
	return offer(now, env.Models), nil
}

func offer(now control.Settings, models []string) offered {
	if now.Mode == "" || now.Mode == "auto" {
		now.Mode = "default"
	}
	if !slices.Contains(models, now.Model) {
		models = append([]string{now.Model}, models...)
	}
	return offered{now, models}
}

func (o offered) modes() *acp.SessionModeState {
	return &acp.SessionModeState{AvailableModes: modes(), CurrentModeId: acp.SessionModeId(o.now.Mode)}
}

func (o offered) modelState() *acp.SessionModelState {
	state := &acp.SessionModelState{CurrentModelId: acp.ModelId(o.now.Model)}
	for _, name := range o.models {
		state.AvailableModels = append(state.AvailableModels, acp.ModelInfo{ModelId: acp.ModelId(name), Name: name})
	}
	return state
}

// options are all settings as options of the protocol.
func (o offered) options() []acp.SessionConfigOption {
	choice := func(value, name, about string) acp.SessionConfigSelectOption {
		one := acp.SessionConfigSelectOption{Value: acp.SessionConfigValueId(value), Name: name}
		if about != "" {
			one.Description = &about
		}
		return one
	}
	option := func(id, name string, category acp.SessionConfigOptionCategory, now string,
		choices acp.SessionConfigSelectOptionsUngrouped) acp.SessionConfigOption {
		one := &acp.SessionConfigOptionSelect{Id: acp.SessionConfigId(id), Name: name, Type: "select",
			CurrentValue: acp.SessionConfigValueId(now), Options: acp.SessionConfigSelectOptions{Ungrouped: &choices}}
		if category != "" {
			one.Category = &category
		}
		return acp.SessionConfigOption{Select: one}
	}
	var mode, model acp.SessionConfigSelectOptionsUngrouped
	for _, m := range modes() {
		mode = append(mode, choice(string(m.Id), m.Name, *m.Description))
	}
	for _, name := range o.models {
		model = append(model, choice(name, name, ""))
	}
	effort := acp.SessionConfigSelectOptionsUngrouped{choice(defaultEffort, "Default", "as the provider has it")}
	for _, name := range control.Efforts() {
		effort = append(effort, choice(name, name, ""))
	}
	now := o.now.Thinking.Effort
	if now == "" {
		now = defaultEffort
	}
	return []acp.SessionConfigOption{
		option(modeOption, "Permissions", acp.SessionConfigOptionCategoryMode, o.now.Mode, mode),
		option(modelOption, "Model", acp.SessionConfigOptionCategoryModel, o.now.Model, model),
		option(effortOption, "Effort", acp.SessionConfigOptionCategoryThoughtLevel, now, effort),
		option(sessionOption, "Session", "", o.now.SessionMode, acp.SessionConfigSelectOptionsUngrouped{
			choice("interactive", "Interactive", "the agent stops when it has answered"),
			choice("autopilot", "Autopilot", "the agent goes on until it says that all is done"),
		}),
	}
}

// configure changes settings, and tells the client of all that is different.
func (s *session) configure(ctx context.Context, req control.ConfigureRequest) (offered, error) {
	if _, err := s.open.Configure(ctx, req); err != nil {
		return offered{}, err
	}
	return s.tellSettings(ctx)
}

// tellSettings tells the client of settings that differ from those that it knows.
func (s *session) tellSettings(ctx context.Context) (offered, error) {
	s.telling.Lock()
	defer s.telling.Unlock()
	o, err := s.offer(ctx)
	if err != nil || o.now == s.known {
		return o, err
	}
	before := s.known
	s.known = o.now
	if before == (control.Settings{}) { // the answer that opens the session has them
		return o, nil
	}
	if before.Mode != o.now.Mode {
		s.update(acp.SessionUpdate{CurrentModeUpdate: &acp.SessionCurrentModeUpdate{
			CurrentModeId: acp.SessionModeId(o.now.Mode)}})
	}
	s.update(acp.SessionUpdate{ConfigOptionUpdate: &acp.SessionConfigOptionUpdate{ConfigOptions: o.options()}})
	return o, nil
}

// changes tells the client of settings that others change, such as an approved plan, and of
// commands, until the session is closed.
func (s *session) changes() {
	version := int64(0)
	for s.ctx.Err() == nil {
		now, err := s.open.State(s.ctx, control.StateRequest{After: version, Wait: time.Minute})
		if err == nil {
			version = now.Version
			_, err = s.tellSettings(s.ctx)
		}
		if err == nil {
			err = s.tellCommands(s.ctx)
		}
		if err != nil {
			if s.ctx.Err() == nil {
				s.of.conn.warn("read the state of session %s: %v", s.name(), err)
			}
			return
		}
	}
}

// tellCommands tells the client with what a prompt may begin, if that has changed.
func (s *session) tellCommands(ctx context.Context) error {
	all, err := s.open.Commands(ctx)
	if err != nil {
		return err
	}
	list := []acp.AvailableCommand{}
	names := []string{}
	for _, one := range all.Commands {
		if one.ShadowedBy != "" || one.NotForPeople {
			continue
		}
		c := acp.AvailableCommand{Name: one.Name, Description: one.Description}
		if one.ArgumentHint != "" {
			c.Input = &acp.AvailableCommandInput{Unstructured: &acp.UnstructuredCommandInput{Hint: one.ArgumentHint}}
		}
		list, names = append(list, c), append(names, one.Name)
	}
	if slices.Equal(names, s.commands) {
		return nil
	}
	s.commands = names
	s.update(acp.SessionUpdate{AvailableCommandsUpdate: &acp.SessionAvailableCommandsUpdate{AvailableCommands: list}})
	return nil
}

// setMode changes the permission mode.
func (s *served) setMode(ctx context.Context, p acp.SetSessionModeRequest) (any, error) {
	one, err := s.find(p.SessionId)
	if err != nil {
		return nil, err
	}
	mode := string(p.ModeId)
	_, err = one.configure(ctx, control.ConfigureRequest{Mode: &mode})
	return acp.SetSessionModeResponse{}, err
}

// setModel changes the model.
func (s *served) setModel(ctx context.Context, p acp.UnstableSetSessionModelRequest) (any, error) {
	one, err := s.find(p.SessionId)
	if err != nil {
		return nil, err
	}
	model := string(p.ModelId)
	_, err = one.configure(ctx, control.ConfigureRequest{Model: &model})
	return acp.UnstableSetSessionModelResponse{}, err
}

// setOption changes one of the options.
func (s *served) setOption(ctx context.Context, p acp.SetSessionConfigOptionRequest) (any, error) {
	if p.ValueId == nil {
		return nil, refuse(acp.NewInvalidParams, "change an option: its value is the name of a choice")
	}
	one, err := s.find(p.ValueId.SessionId)
	if err != nil {
		return nil, err
	}
	value, req := string(p.ValueId.Value), control.ConfigureRequest{}
	switch p.ValueId.ConfigId {
	case modeOption:
		req.Mode = &value
	case modelOption:
		req.Model = &value
	case effortOption:
		req.Thinking = &control.Thinking{Effort: value}
		if value == defaultEffort {
			req.Thinking.Effort = ""
		}
	case sessionOption:
		req.SessionMode = &value
	default:
		return nil, refuse(acp.NewInvalidParams, fmt.Sprintf("change option %.80q: it is not known", p.ValueId.ConfigId))
	}
	now, err := one.configure(ctx, req)
	if err != nil {
		return nil, err
	}
	return acp.SetSessionConfigOptionResponse{ConfigOptions: now.options()}, nil
}
