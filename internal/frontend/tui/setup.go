package tui

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/platform/figures"
)

// Access is how models are reached.
type Access struct {
	Provider          string // anthropic or openai
	BaseURL           string // empty: the default of the provider
	APIKey, AuthToken string
	Model             string // the default model; empty: Drover's own default
}

// Local is a server of models on this machine that answers.
type Local struct {
	Name    string
	BaseURL string
	Models  []string
}

// Vendor is an agent of another vendor that is installed.
type Vendor struct {
	Name  string // as a type of agent
	Title string
}

// SetUp is what the page that sets up a model does.
type SetUp struct {
	File   string // in which it is saved
	Agents []Vendor
	Local  func(context.Context) []Local
	// Models asks a provider for its models. A server without such a list has none.
	Models func(context.Context, Access) ([]string, error)
	Save   func(Access) error
}

// setupStep is a part of the page.
type setupStep int

const (
	waysStep   setupStep = iota // how a model is reached
	formStep                    // typing the access data
	modelsStep                  // which model of a server
	textStep                    // what to do elsewhere
)

// way is one way to a model.
type way struct {
	title, about string
	choose       func(*setup)
}

// blank is a text of a form.
type blank struct {
	label, text string
	secret      bool
	into        func(*Access) *string
}

// setup is the page that sets up a model.
type setup struct {
	o       *SetUp
	step    setupStep
	ways    []way
	way     menu
	locals  []Local
	looking bool // for local servers

	title  string // of the choice
	text   []string
	next   func(*setup) // what enter does with a text; nil: nothing
	access Access
	fields []blank
	field  int
	trying bool
	try    int // the number of the last one
	err    string

	models []string
	model  menu

	demo bool // the tour was chosen
}

// waits reports whether something is under way.
func (s *setup) waits() bool { return s.looking || s.trying }

// menu shows the ways that are known now.
func (s *setup) menu(o *SetUp) {
	chosen := ""
	if s.way.at < len(s.ways) {
		chosen = s.ways[s.way.at].title
	}
	gateway := func(api, provider string) func(*setup) {
		return func(s *setup) {
			s.form("Gateway with the "+api+" API", Access{Provider: provider},
				blank{label: "Address", into: func(a *Access) *string { return &a.BaseURL }},
				blank{label: "Token", secret: true, into: func(a *Access) *string {
					if provider == "anthropic" {
						return &a.AuthToken
					}
					return &a.APIKey
				}})
		}
	}
	key := func(title, provider string) func(*setup) {
		return func(s *setup) {
			key := blank{label: "Key", secret: true, into: func(a *Access) *string { return &a.APIKey }}
			s.form(title, Access{Provider: provider}, key)
		}
	}
	s.o = o
	s.ways = []way{
		{"Anthropic API key", "Claude; keys are at console.anthropic.com", key("Anthropic API key", "anthropic")},
		{"OpenAI API key", "GPT; keys are at platform.openai.com", key("OpenAI API key", "openai")},
		{"Gateway, Anthropic API", "an address and a token", gateway("Anthropic", "anthropic")},
		{"Gateway, OpenAI API", "an address and a token: OpenRouter, LiteLLM …", gateway("OpenAI", "openai")},
		{"Amazon Bedrock, Vertex AI", "through a gateway", func(s *setup) {
			s.say("Amazon Bedrock, Google Vertex AI", gateway("Anthropic", "anthropic"),
				"Drover does not speak the protocols of Amazon Bedrock and Google Vertex AI. Run a gateway that does, such as LiteLLM: "+
					"it signs in to your cloud account. Then enter its address here.")
		}},
	}
	for _, l := range s.locals {
		name := printable.Line(l.Name, 20)
		about := fmt.Sprintf("%s at %s", figures.Several(len(l.Models), "model"), strings.TrimSuffix(strings.TrimPrefix(l.BaseURL, "http://"), "/v1"))
		s.ways = append(s.ways, way{name + " on this machine", about, func(s *setup) {
			if s.access = (Access{Provider: "openai", BaseURL: l.BaseURL}); len(l.Models) > 0 {
				s.choose(name+": choose a model", l.Models)
				return
			}
			s.say(name, nil, name+" answers, but has no model. Add one there, then press r on the page before.")
		}})
	}
	for _, v := range o.Agents {
		s.ways = append(s.ways, way{v.Title, "installed; runs as a task, without a key here", func(s *setup) {
			s.say(v.Title, nil, v.Title+" runs as a task of Drover, with its own model and account:", "",
				fmt.Sprintf("  drover agent run %s \"fix the failing test\"", v.Name), "",
				"A conversation with Drover needs a model of its own: choose another way for that.")
		}})
	}
	s.ways = append(s.ways, way{"Tour", "without a key: a scripted model runs real commands", nil})
	s.way.at = max(0, slices.IndexFunc(s.ways, func(w way) bool { return w.title == chosen }))
}

// form, choose and say open a part of the page.
func (s *setup) form(title string, a Access, fields ...blank) {
	s.step, s.title, s.access, s.fields, s.field, s.err = formStep, title, a, fields, 0, ""
}

func (s *setup) choose(title string, models []string) {
	s.step, s.title, s.models, s.model, s.err = modelsStep, title, models, menu{}, ""
}

func (s *setup) say(title string, next func(*setup), text ...string) {
	s.step, s.title, s.text, s.next, s.err = textStep, title, text, next, ""
}

// typed adds typed or pasted text.
func (s *setup) typed(text string) {
	text = strings.Join(strings.Fields(printable.Line(text, 4096)), " ")
	switch {
	case s.trying:
	case s.step == formStep:
		s.fields[s.field].text += text
	case s.step == modelsStep:
		s.model.add(text)
	}
}

// fits returns the models that match the typed text.
func (s *setup) fits() []string {
	return slices.DeleteFunc(slices.Clone(s.models), func(name string) bool { return !s.model.fits(name) })
}

// lookForServers looks for servers of models on this machine.
func (m *Model) lookForServers() tea.Cmd {
	m.setup.looking = true
	local := m.o.SetUp.Local
	return read(m, func(ctx context.Context) ([]Local, error) { return local(ctx), nil },
		func(list []Local, _ error) tea.Cmd {
			m.setup.locals, m.setup.looking = list, false
			m.setup.menu(m.setup.o)
			return nil
		})
}

// setupKey takes in a key of the page.
func (m *Model) setupKey(msg tea.KeyPressMsg) tea.Cmd {
	s := &m.setup
	key := msg.String()
	if key == "esc" || key == "ctrl+c" || key == "ctrl+d" && s.step == waysStep {
		if s.step == waysStep {
			return tea.Quit
		}
		s.step, s.trying, s.access, s.fields, s.err = waysStep, false, Access{}, nil, ""
		s.try++
		return nil
	}
	switch {
	case s.trying:
	case s.step == waysStep:
		return m.wayKey(msg)
	case s.step == textStep:
		if key == "enter" && s.next != nil {
			s.next(s)
		}
	case s.step == modelsStep:
		return m.modelKey(msg)
	default:
		return m.formKey(msg)
	}
	return nil
}

func (m *Model) wayKey(msg tea.KeyPressMsg) tea.Cmd {
	s := &m.setup
	switch msg.String() {
	case "r":
		if !s.looking {
			return m.lookForServers()
		}
	case "enter":
		if w := s.ways[s.way.at]; w.choose != nil {
			w.choose(s)
			return nil
		}
		s.demo = true
		return tea.Quit
	default:
		s.way.key(msg, len(s.ways), false)
	}
	return nil
}

func (m *Model) modelKey(msg tea.KeyPressMsg) tea.Cmd {
	s := &m.setup
	fits := s.fits()
	if msg.String() == "enter" && s.model.at < len(fits) {
		s.access.Model = s.access.Provider + "/" + fits[s.model.at]
		return m.save()
	}
	s.model.key(msg, len(fits), true)
	return nil
}

func (m *Model) formKey(msg tea.KeyPressMsg) tea.Cmd {
	s := &m.setup
	f := &s.fields[s.field]
	switch msg.String() {
	case "backspace", "ctrl+h":
		if r := []rune(f.text); len(r) > 0 {
			f.text = string(r[:len(r)-1])
		}
	case "ctrl+u":
		f.text = ""
	case "tab", "down":
		s.field = (s.field + 1) % len(s.fields)
	case "shift+tab", "up":
		s.field = (s.field + len(s.fields) - 1) % len(s.fields)
	case "enter":
		if s.field < len(s.fields)-1 {
			s.field++
			return nil
		}
		if s.filled() {
			return m.tryAccess()
		}
	case "ctrl+s":
		if s.err != "" && s.filled() {
			return m.unchecked()
		}
	default:
		s.typed(msg.Text)
	}
	return nil
}

// filled reads the form and names a missing field. A gateway may need no token.
func (s *setup) filled() bool {
	for i, f := range s.fields {
		text := strings.TrimSpace(f.text)
		if text == "" && f.label != "Token" {
			s.field, s.err = i, f.label+" is empty"
			return false
		}
		*f.into(&s.access) = text
	}
	if a := &s.access; a.BaseURL != "" {
		a.BaseURL = strings.TrimRight(a.BaseURL, "/")
		if a.Provider == "anthropic" { // its calls add it
			a.BaseURL = strings.TrimSuffix(a.BaseURL, "/v1")
		}
		if u, err := url.Parse(a.BaseURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			s.field, s.err = 0, "the address must begin with https:// or http://"
			return false
		}
		if a.Provider == "anthropic" && a.AuthToken == "" {
			a.AuthToken = "none" // the gateway wants none, but the API has a place for it
		}
	}
	s.err = ""
	return true
}

// tryAccess tries the access data at the provider.
func (m *Model) tryAccess() tea.Cmd {
	s := &m.setup
	if s.access.Model != "" {
		return m.unchecked()
	}
	a, models := s.access, s.o.Models
	return m.try(func(ctx context.Context) ([]string, error) { return models(ctx, a) }, func(list []string) tea.Cmd {
		if len(list) > 0 && (s.access.Provider == "openai" || s.access.BaseURL != "") {
			s.choose("Choose a model", list)
			return nil
		}
		return m.unchecked()
	})
}

// try does work for the page, and hands its result to next, unless the user has gone back.
func (m *Model) try(work func(context.Context) ([]string, error), next func([]string) tea.Cmd) tea.Cmd {
	s := &m.setup
	s.trying, s.try = true, s.try+1
	n := s.try
	return read(m, work, func(list []string, err error) tea.Cmd {
		if n != s.try {
			return nil
		}
		s.trying = false
		if err != nil {
			s.err = errorText(err)
			return nil
		}
		return next(list)
	})
}

// unchecked saves the form, once a model is named where Drover has no default.
func (m *Model) unchecked() tea.Cmd {
	s := &m.setup
	if s.access.Provider == "openai" && s.access.Model == "" {
		s.fields = append(s.fields, blank{label: "Model", into: func(a *Access) *string { return &a.Model }})
		s.field = len(s.fields) - 1
		return nil
	}
	if name := s.access.Model; name != "" && !strings.HasPrefix(name, s.access.Provider+"/") {
		s.access.Model = s.access.Provider + "/" + name
	}
	return m.save()
}

func (m *Model) save() tea.Cmd {
	a, save, file := m.setup.access, m.setup.o.Save, m.setup.o.File
	return m.try(func(context.Context) ([]string, error) { return nil, save(a) }, func([]string) tea.Cmd {
		m.say("Saved in " + file + ".")
		m.screen, m.setup = chatScreen, setup{}
		return m.begin()
	})
}

// setupFrame draws the page.
func (m *Model) setupFrame() frame {
	t, s := m.theme, &m.setup
	lines := []string{t.Bold.Render(ansi.Truncate("Drover · "+cmp.Or(s.title, "set up a model"), m.width, "…")), ""}
	if s.step == waysStep {
		lines[0] = t.Bold.Render("Drover · set up a model")
		lines = append(lines, wrapped("Drover needs a model. Choose how to reach one.", m.width-2, "  ", t.Plain.Render)...)
		lines = append(lines, "")
	}
	var cursor *tea.Cursor
	keys := "enter continues · esc back"
	switch s.step {
	case waysStep:
		keys = "↑↓ choose · enter continues · esc leaves · r looks for local servers again"
		if s.looking {
			keys = m.spin() + " looking for local servers · ↑↓ choose · enter continues · esc leaves"
		}
		lines = append(lines, m.menuLines(s.way, len(s.ways), m.height-len(lines)-1, "", func(i int) string {
			return fmt.Sprintf("%-26s ", s.ways[i].title) + t.Dim.Render(s.ways[i].about)
		})...)
	case textStep:
		for _, text := range s.text {
			lines = append(lines, wrapped(text, m.width-2, "  ", t.Plain.Render)...)
		}
		if s.next == nil {
			keys = "esc back"
		}
	case modelsStep:
		lines = append(lines, t.Prompt.Render("> ")+printable.Line(s.model.query, m.width-4), "")
		cursor = tea.NewCursor(min(m.width-1, 2+ansi.StringWidth(printable.Line(s.model.query, m.width-4))), 2)
		fits := s.fits()
		lines = append(lines, m.menuLines(s.model, len(fits), m.height-len(lines)-4, "  No model matches.",
			func(i int) string { return printable.Line(fits[i], 200) })...)
		keys = "↑↓ choose · type to search · enter takes it · esc back"
	case formStep:
		for i, f := range s.fields {
			text := f.text
			if f.secret {
				text = strings.Repeat("•", len([]rune(text)))
			}
			label := fmt.Sprintf("  %-8s ", f.label)
			room := max(1, m.width-ansi.StringWidth(label)-2)
			if over := ansi.StringWidth(text) - room; over > 0 {
				text = ansi.TruncateLeft(text, over+1, "…")
			}
			if i == s.field {
				cursor = tea.NewCursor(ansi.StringWidth(label+text), len(lines))
				label = t.Accent.Render("❯ " + label[2:])
			}
			lines = append(lines, label+text)
		}
		lines = append(lines, "")
		variable := strings.ToUpper(s.access.Provider) + "_API_KEY"
		if s.access.Provider == "anthropic" && len(s.fields) > 1 {
			variable = "ANTHROPIC_AUTH_TOKEN"
		}
		where := fmt.Sprintf("It is saved in %s, which only you can read. To keep it elsewhere, set %s and start drover again.",
			s.o.File, variable)
		lines = append(lines, wrapped(where, m.width-2, "  ", t.Dim.Render)...)
		keys = "enter checks and saves · esc back"
		if len(s.fields) > 1 {
			keys = "tab the next field · " + keys
		}
	}
	if s.err != "" {
		lines = append(lines, "")
		lines = append(lines, wrapped("✗ "+printable.Line(s.err, 400), m.width-2, "  ", t.Bad.Render)...)
		if s.step == formStep {
			keys = "enter tries again · ctrl+s saves it unchecked · esc back"
		}
	}
	if s.trying {
		keys, cursor = m.spin()+" checking … · esc stops", nil
	}
	return m.framed(lines, keys, cursor)
}
