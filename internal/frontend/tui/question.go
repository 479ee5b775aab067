package tui

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/frontend/tui/transcript"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// A question takes answers when it was drawn and no key has come since for calmRounds times
// calmFor: keys from before the user can have read it go to the prompt. Several rounds let
// keys that queued while the program was suspended arrive between them.
const (
	calmFor    = 150 * time.Millisecond
	calmRounds = 3
)

// calm is the end of one round without a key.
type calm struct {
	of    *asking
	typed int
}

// asking is the question that is shown.
type asking struct {
	question task.Question
	session  task.ID  // that asks; empty: the one of the conversation
	typed    int      // how often keys came before it took answers; 0: it was not drawn yet
	calm     int      // rounds without a key since
	body     string   // the call, as who decides sees it
	options  []choice // what can be answered
	at       int      // the one under the cursor
	marked   []bool   // of a question where several may be chosen
	typing   bool     // a reason or an answer is being typed
	editor   input.Editor
	scroll   int
	page     int    // lines that were drawn
	last     int    // the last line that scroll may be at, as it was drawn
	problem  string // why an answer was not taken
	waiting  bool   // an answer is on its way, or the rest of the call
	plan     *plan  // that is to be approved; nil: something else

	changed json.RawMessage // the input that the user wants instead; nil: none
	edit    *callEdit       // the fields, while one of them is edited; nil: none is

	// Of a tool that asks several questions at once.
	parts   []task.ChoicePart
	part    int
	answers []string
}

// choice is one answer.
type choice struct {
	label, about string
	do           answer
}

type answer int

const (
	allowOnce answer = iota
	allowAlways
	allowEdits // and the permission mode acceptEdits
	deny       // with a reason that is typed
	take       // the label
	other      // a text that is typed
)

// armed reports whether keys answer it.
func (a *asking) armed() bool { return a.calm >= calmRounds }

// guard decides from when on keys answer the question that is shown: answers says whether the
// message, if it is a key, was for the question.
func (m *Model) guard(msg tea.Msg, answers bool) tea.Cmd {
	a := m.ask
	if a == nil || m.screen == inboxScreen { // there the user has opened it
		return nil
	}
	if m.screen != chatScreen || m.width < leastWidth || m.height < leastHeight {
		a.typed, a.calm = 0, 0
		return nil
	}
	switch msg := msg.(type) {
	case calm:
		if msg.of != a || msg.typed != a.typed {
			return nil
		}
		if a.calm++; a.armed() {
			return nil
		}
	case tea.KeyPressMsg, tea.PasteMsg:
		if answers && a.armed() {
			return nil
		}
		a.typed, a.calm = a.typed+1, 0
	default:
		if a.typed > 0 {
			return nil
		}
		a.typed = 1
	}
	round := calm{a, a.typed}
	return tea.Tick(calmFor, func(time.Time) tea.Msg { return round })
}

// newAsking makes a question ready to be shown.
func newAsking(q task.Question) *asking {
	a := &asking{question: q, editor: input.New(nil)}
	switch q.Kind {
	case task.Choice:
		var in task.ChoiceInput
		if json.Unmarshal(q.Input, &in) == nil && len(in.Questions) > 0 && len(in.Questions[0].Options) > 0 {
			a.parts = in.Questions
			a.show(0)
			return a
		}
		a.body = excerpt.Call(q.Input, q.Hidden)
		a.options = []choice{{"Answer", "type it", other}, {"No answer", "type a reason, if you like", deny}}
	case task.Form:
		a.body = excerpt.Call(q.Input, q.Hidden)
		a.options = []choice{{"Answer", "a JSON object", other}, {"No answer", "type a reason, if you like", deny}}
	default:
		a.compose()
	}
	return a
}

// compose prepares a question of permission: the call, as the user has changed it, and the answers.
func (a *asking) compose() {
	q := a.question
	a.at, a.scroll = 0, 0
	if a.changed != nil {
		q.Input = a.changed
	}
	a.body = excerpt.Call(q.Input, q.Hidden)
	if a.plan = newPlan(q); a.plan != nil {
		a.body = a.plan.text + "\n"
		a.options = planChoices(q.Tool == task.ExitPlanMode)
		return
	}
	a.options = []choice{{"Allow once", "", allowOnce}}
	switch {
	case a.changed != nil: // a rule is kept only with a call as it was asked about
		a.options[0].about = "with your change, which the agent is told"
	case q.Suggest != "":
		a.options = append(a.options, choice{"Allow always",
			transcript.AddsRule(q.Suggest), allowAlways})
	}
	a.options = append(a.options, choice{"No", "and tell the agent why", deny})
}

// show goes to one of the questions of a tool.
func (a *asking) show(i int) {
	p := a.parts[i]
	a.part, a.at, a.scroll, a.typing = i, 0, 0, false
	a.body = excerpt.Exact(p.Question) + "\n"
	a.options = nil
	for _, o := range p.Options {
		a.options = append(a.options, choice{excerpt.ExactLine(o.Label), excerpt.ExactLine(o.Description), take})
	}
	a.options = append(a.options, choice{"Something else", "type it", other})
	a.marked = make([]bool, len(p.Options))
	a.editor = input.New(nil)
}

// several reports whether more than one option may be chosen.
func (a *asking) several() bool { return len(a.parts) > 0 && a.parts[a.part].MultiSelect }

// questions takes in which questions are open, and shows the oldest.
func (m *Model) questions(open []task.Question) {
	m.open = open
	if m.screen == inboxScreen {
		return // it has all questions
	}
	same := func(q task.Question) bool {
		return m.ask != nil && q.ID == m.ask.question.ID && q.Digest == m.ask.question.Digest
	}
	if m.ask != nil && slices.ContainsFunc(open, same) {
		return
	}
	if m.ask != nil && !m.ask.waiting {
		m.say("the question was answered elsewhere, or nobody waits for it any more")
	}
	m.ask = nil
	for _, q := range open {
		if !m.later[q.ID] {
			m.ask = newAsking(q)
			m.window.Follow()
			return
		}
	}
}

// needsWhole asks for all of a call of which only the begin was sent.
func (m *Model) needsWhole() tea.Cmd {
	q := m.ask.question
	m.ask.waiting = true
	return askAt(m, m.ask.session, func(ctx context.Context, api control.API) (control.Approvals, error) {
		return api.Approvals(ctx, control.ApprovalsRequest{ID: q.ID})
	}, func(list control.Approvals, err error) tea.Cmd {
		m.whole(q.ID, list, err)
		return nil
	})
}

func (m *Model) whole(id string, list control.Approvals, err error) {
	if m.ask == nil || m.ask.question.ID != id {
		return
	}
	m.ask.waiting = false
	for _, q := range list.Questions {
		if q.ID == id && q.Digest == m.ask.question.Digest && q.Hidden == 0 {
			before := m.ask
			m.ask = newAsking(q)
			m.ask.session, m.ask.typed, m.ask.calm = before.session, before.typed, before.calm
			m.ask.problem = "this is all of it: read it, then answer"
			return
		}
	}
	m.ask.problem = "the rest of the call cannot be shown: " + errorText(err)
}

// questionKey takes in a key while a question is shown; taken is false for what goes to
// the rest of the screen.
func (m *Model) questionKey(msg tea.KeyPressMsg) (cmd tea.Cmd, taken bool) {
	a, key := m.ask, msg.String()
	if a.waiting {
		return nil, key != "ctrl+c" && key != "ctrl+d"
	}
	if a.edit != nil {
		m.editKey(msg)
		return nil, true
	}
	if a.typing {
		return m.answerKey(msg), true
	}
	if key == "tab" && a.canChange() {
		if a.question.Hidden > 0 {
			return m.needsWhole(), true
		}
		a.beginEdit()
		return nil, true
	}
	switch key {
	case "up", "shift+tab":
		a.at = (a.at + len(a.options) - 1) % len(a.options)
	case "down", "tab":
		a.at = (a.at + 1) % len(a.options)
	case "pgup":
		a.scroll = max(0, a.scroll-a.page)
	case "pgdown":
		a.scroll = min(a.scroll+a.page, a.last)
	case "s":
		if a.plan != nil {
			a.plan.source, a.scroll = !a.plan.source, 0
		}
	case "esc":
		m.later[a.question.ID] = true
		m.ask = nil
		m.say("answer later: ctrl+g comes back to the question")
		m.questions(m.open)
	case "space":
		if a.several() && a.at < len(a.marked) {
			a.marked[a.at] = !a.marked[a.at]
		}
	case "enter":
		return m.chooseAnswer(), true
	case "1", "2", "3", "4", "5", "6":
		n := int(key[0] - '1')
		if n >= len(a.options) {
			return nil, true
		}
		a.at = n
		if a.several() && n < len(a.marked) {
			a.marked[n] = !a.marked[n]
			return nil, true
		}
		return m.chooseAnswer(), true
	case "ctrl+c", "ctrl+d", "ctrl+b", "shift+down", "ctrl+t", "ctrl+o", "alt+o", "ctrl+up", "ctrl+down", "shift+up",
		"ctrl+home", "ctrl+end", "f1", "ctrl+l":
		return nil, false
	}
	return nil, true
}

// answerKey takes in a key of a text that is typed.
func (m *Model) answerKey(msg tea.KeyPressMsg) tea.Cmd {
	a := m.ask
	switch key := msg.String(); {
	case key == "esc" || key == "ctrl+c":
		a.typing, a.problem = false, ""
	case key == "enter":
		return m.answerTyped(strings.TrimSpace(a.editor.Value()))
	case key == "shift+enter" || key == "alt+enter" || key == "ctrl+j":
		a.editor = a.editor.Insert("\n")
	default:
		a.editor = edited(a.editor, msg)
	}
	return nil
}

// chooseAnswer gives the answer under the cursor.
func (m *Model) chooseAnswer() tea.Cmd {
	a := m.ask
	a.problem = ""
	switch c := a.options[a.at]; c.do {
	case allowOnce, allowAlways, allowEdits:
		if a.question.Hidden > 0 {
			return m.needsWhole()
		}
		always := ""
		if c.do == allowAlways {
			always = a.question.Suggest
		}
		return m.decide(task.Reply{Allow: true, Input: a.changed, AcceptEdits: c.do == allowEdits}, always)
	case deny, other:
		a.typing = true
	case take:
		labels := []string{a.parts[a.part].Options[a.at].Label}
		if a.several() && slices.Contains(a.marked, true) {
			labels = nil
			for i, on := range a.marked {
				if on {
					labels = append(labels, a.parts[a.part].Options[i].Label)
				}
			}
		}
		return m.answerPart(strings.Join(labels, ", "))
	}
	return nil
}

// answerTyped gives an answer that was typed, or a denial with its reason.
func (m *Model) answerTyped(text string) tea.Cmd {
	a := m.ask
	switch {
	case a.options[a.at].do == deny:
		return m.decide(task.Reply{Reason: text}, "")
	case text == "":
		a.problem = "an answer is needed: type one, or press esc"
		return nil
	case a.question.Kind == task.Form:
		return m.decide(task.Reply{Allow: true, Input: json.RawMessage(text)}, "")
	case len(a.parts) > 0:
		return m.answerPart(text)
	}
	return m.decide(task.Reply{Allow: true, Text: text}, "")
}

// answerPart takes in the answer to one of several questions, and gives all with the last.
func (m *Model) answerPart(text string) tea.Cmd {
	a := m.ask
	if len(a.parts) > 1 {
		text = a.parts[a.part].Header + ": " + text
	}
	a.answers = append(a.answers, text)
	if a.part+1 < len(a.parts) {
		a.show(a.part + 1)
		return nil
	}
	return m.decide(task.Reply{Allow: true, Text: strings.Join(a.answers, "\n")}, "")
}

// decide answers the question that is shown.
func (m *Model) decide(r task.Reply, always string) tea.Cmd {
	a := m.ask
	if err := a.question.Check(r); err != nil {
		a.problem = errorText(err)
		return nil
	}
	a.waiting, a.typing = true, false
	q := a.question
	req := control.DecideRequest{ID: q.ID, Digest: q.Digest, Reply: r, Always: always, Actor: task.ByUser}
	return askAt(m, a.session, func(ctx context.Context, api control.API) (struct{}, error) {
		return struct{}{}, api.Decide(ctx, req)
	}, func(_ struct{}, err error) tea.Cmd {
		m.answered(q.ID, err)
		if m.screen == inboxScreen {
			return m.readWaiting()
		}
		return nil
	})
}

// answered takes in what became of an answer.
func (m *Model) answered(id string, err error) {
	if err != nil {
		if m.ask != nil && m.ask.question.ID == id {
			m.ask.waiting, m.ask.problem = false, errorText(err)
			return
		}
		m.say(fmt.Sprintf("the answer was not taken: %s", errorText(err)))
		return
	}
	m.open = slices.DeleteFunc(slices.Clone(m.open), func(q task.Question) bool { return q.ID == id })
	m.dropItem(func(i control.AttentionItem) bool { return i.ID == id })
	if m.ask != nil && m.ask.question.ID == id {
		m.ask = nil
		m.questions(m.open)
	}
}
