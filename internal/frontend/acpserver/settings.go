package acpserver

import (
	"cmp"
	"context"
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

// modes are the permission modes with their names for people.
func modes() []acp.SessionMode {
	mode := func(id, name, about string) acp.SessionMode {
		return acp.SessionMode{Id: acp.SessionModeId(id), Name: name, Description: &about}
	}
	return []acp.SessionMode{
		mode("default", "Ask", "reads in the folder are allowed; asks before calls that neither a rule nor the sandbox covers"),
		mode("acceptEdits", "Accept edits", "edits in the folder are allowed too"),
		mode("plan", "Plan", "reads only, until you approve a plan"),
		mode("dontAsk", "Don't ask", "denies every call that it would ask about"),
		mode("bypassPermissions", "Bypass permissions", "allows every call that no rule denies"),
	}
}

// offered are the settings of a session and the models to choose from.
type offered struct {
	now    control.Settings
	models []string // by name
}

// offer reads the settings and the models.
func (s *session) offer(ctx context.Context) (offered, error) {
	now, err := s.api.Configure(ctx, control.ConfigureRequest{})
	if err != nil {
		return offered{}, err
	}
	env, err := s.api.Environment(ctx)
	if err != nil {
		return offered{}, err
	}
	if now.Mode == "" || now.Mode == "auto" {
		now.Mode = "default"
	}
	if !slices.Contains(env.Models, now.Model) {
		env.Models = append([]string{now.Model}, env.Models...)
	}
	return offered{now, env.Models}, nil
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
	effort := acp.SessionConfigSelectOptionsUngrouped{choice(defaultEffort, "Default", "the provider's default")}
	for _, name := range control.Efforts() {
		effort = append(effort, choice(name, name, ""))
	}
	now := cmp.Or(o.now.Thinking.Effort, defaultEffort)
	return []acp.SessionConfigOption{
		option(modeOption, "Permissions", acp.SessionConfigOptionCategoryMode, o.now.Mode, mode),
		option(modelOption, "Model", acp.SessionConfigOptionCategoryModel, o.now.Model, model),
		option(effortOption, "Effort", acp.SessionConfigOptionCategoryThoughtLevel, now, effort),
		option(sessionOption, "Session", "", o.now.SessionMode, acp.SessionConfigSelectOptionsUngrouped{
			choice("interactive", "Interactive", "the agent stops after its answer"),
			choice("autopilot", "Autopilot", "the agent continues until it reports that everything is done"),
		}),
	}
}

// configure changes settings of an open session and shows the client the result.
func (s *server) configure(ctx context.Context, id acp.SessionId, req control.ConfigureRequest) (offered, error) {
	one, err := s.find(id)
	if err == nil {
		_, err = one.api.Configure(ctx, req)
	}
	if err != nil {
		return offered{}, err
	}
	return one.showSettings(ctx)
}

// showSettings sends the client the settings that it does not know.
func (s *session) showSettings(ctx context.Context) (offered, error) {
	s.showing.Lock()
	defer s.showing.Unlock()
	o, err := s.offer(ctx)
	if err != nil || o.now == s.known {
		return o, err
	}
	before := s.known
	s.known = o.now
	if before == (control.Settings{}) { // the answer to the request that opens the session has them
		return o, nil
	}
	if before.Mode != o.now.Mode {
		s.update(acp.SessionUpdate{CurrentModeUpdate: &acp.SessionCurrentModeUpdate{
			CurrentModeId: acp.SessionModeId(o.now.Mode)}})
	}
	s.update(acp.SessionUpdate{ConfigOptionUpdate: &acp.SessionConfigOptionUpdate{ConfigOptions: o.options()}})
	return o, nil
}

// changes sends settings that others change, for example by approving a plan, and commands, until the session is
// closed.
func (s *session) changes() {
	version := int64(0)
	for s.ctx.Err() == nil {
		now, err := s.api.State(s.ctx, control.StateRequest{After: version, Wait: time.Minute})
		if err == nil {
			version = now.Version
			_, err = s.showSettings(s.ctx)
		}
		if err == nil {
			err = s.showCommands(s.ctx)
		}
		if err != nil {
			s.warn("read the state", err)
			return
		}
	}
}

// showCommands sends the commands with which a prompt may begin, if they have changed.
func (s *session) showCommands(ctx context.Context) error {
	all, err := s.api.Commands(ctx)
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
func (s *server) setMode(ctx context.Context, p acp.SetSessionModeRequest) (any, error) {
	mode := string(p.ModeId)
	_, err := s.configure(ctx, p.SessionId, control.ConfigureRequest{Mode: &mode})
	return acp.SetSessionModeResponse{}, err
}

// setModel changes the model.
func (s *server) setModel(ctx context.Context, p acp.UnstableSetSessionModelRequest) (any, error) {
	model := string(p.ModelId)
	_, err := s.configure(ctx, p.SessionId, control.ConfigureRequest{Model: &model})
	return acp.UnstableSetSessionModelResponse{}, err
}

// setOption changes one of the options.
func (s *server) setOption(ctx context.Context, p acp.SetSessionConfigOptionRequest) (any, error) {
	if p.ValueId == nil {
		return nil, invalid("change an option: its value must be the name of a choice")
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
		return nil, invalid("change option %.80q: it is unknown", p.ValueId.ConfigId)
	}
	now, err := s.configure(ctx, p.ValueId.SessionId, req)
	return acp.SetSessionConfigOptionResponse{ConfigOptions: now.options()}, err
}
