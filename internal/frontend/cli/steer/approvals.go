package steer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// openQuestion is a question and the session that waits for its answer.
type openQuestion struct {
	console.Displayed
	Session task.ID `json:"session_id"`
	session console.Session
}

func opened(q task.Question, s console.Session) openQuestion {
	return openQuestion{console.Displayed{Question: q, Display: excerpt.Call(q.Input, q.Hidden)}, s.Info().Session, s}
}

func (a *app) approvals() *cobra.Command {
	cmd := &cobra.Command{
		Use: "approvals [--watch] [--all-sessions] [--json]",
		Long: "List the open questions of agents in the live sessions of this project: calls that need approval,\n" +
			"and questions to you. The input of a call is shown decoded, with every character visible. Answer with allow,\n" +
			"deny or answer; IDs may be shortened while unique. A question that times out is denied, and the agent sees the reason.",
	}
	all := cmd.PersistentFlags().Bool("all-sessions", false, "look in the sessions of all projects too")
	asJSON := cmd.Flags().Bool("json", false, "a JSON array; with --watch an object a line")
	watch := cmd.Flags().Bool("watch", false, "keep running and print each question when it is asked, until Ctrl-C")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if *watch {
			return a.watchQuestions(ctx, *all, *asJSON)
		}
		open, err := a.questions(ctx, *all)
		if err != nil {
			return err
		}
		if *asJSON {
			return console.PrintArray(a.Stdout, open)
		}
		for _, q := range open {
			if err := a.printQuestion(q); err != nil {
				return err
			}
		}
		if len(open) == 0 {
			return a.Println("No questions need your answer.")
		}
		return nil
	}
	cmd.AddCommand(a.allow(all), a.deny(all), a.answer(all), a.showQuestion(all))
	return cmd
}

func (a *app) allow(all *bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "allow [--always] [--input JSON] [--accept-edits] [--digest D] ID",
		Short: "Allow a call that waits for permission",
		Args:  console.Args(1, 1),
	}
	input := cmd.Flags().String("input", "",
		"run the call with this input instead, a JSON object; the rules are checked again")
	always := cmd.Flags().Bool("always", false,
		"also add the suggested rule to .drover/settings.local.json; it takes effect at once")
	edits := cmd.Flags().Bool("accept-edits", false,
		"of a plan: carry it out in permission mode acceptEdits")
	digest := digestFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		reply := task.Reply{Allow: true, AcceptEdits: *edits}
		if cmd.Flags().Changed("input") {
			var object map[string]json.RawMessage
			if err := json.Unmarshal([]byte(*input), &object); err != nil || object == nil {
				return console.Usage("--input: not a JSON object", `such as --input '{"command":"ls"}'`)
			}
			reply.Input = json.RawMessage(*input)
		}
		return a.decide(cmd.Context(), words[0], *all, "allowed", verdict{reply, *digest, *always})
	}
	cmd.ValidArgsFunction = a.completeQuestions(all)
	return cmd
}

func (a *app) deny(all *bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deny [--reason TEXT] [--digest D] ID",
		Short: "Deny a call that waits for permission",
		Args:  console.Args(1, 1),
	}
	reason := cmd.Flags().String("reason", "", "the reason that the agent sees")
	digest := digestFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		return a.decide(cmd.Context(), words[0], *all, "denied", verdict{task.Reply{Reason: *reason}, *digest, false})
	}
	cmd.ValidArgsFunction = a.completeQuestions(all)
	return cmd
}

func (a *app) answer(all *bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "answer [--digest D] ID TEXT|JSON",
		Short: "Answer a question of an agent, or a form of an MCP server",
		Args:  console.Args(2, 2),
	}
	digest := digestFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		return a.decide(cmd.Context(), words[0], *all, "answered",
			verdict{task.Reply{Allow: true, Text: words[1]}, *digest, false})
	}
	cmd.ValidArgsFunction = a.completeQuestions(all)
	return cmd
}

// show prints a question with all of its input.
func (a *app) showQuestion(all *bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [--json] ID",
		Short: "Show one question with its whole input",
		Args:  console.Args(1, 1),
	}
	asJSON := cmd.Flags().Bool("json", false, "a JSON object")
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		q, err := a.question(ctx, words[0], *all)
		if err != nil {
			return err
		}
		api, done, err := q.session.Open(ctx)
		if err != nil {
			return err
		}
		defer done()
		list, err := api.Approvals(ctx, control.ApprovalsRequest{ID: q.ID})
		switch {
		case err != nil:
			return fmt.Errorf("read question %s: %w", q.ID, err)
		case len(list.Questions) != 1:
			return notOpen(q.ID)
		}
		q = opened(list.Questions[0], q.session)
		if *asJSON {
			return console.PrintJSON(a.Stdout, q)
		}
		return a.printQuestion(q)
	}
	cmd.ValidArgsFunction = a.completeQuestions(all)
	return cmd
}

// verdict is what somebody answers. A digest is that, or the beginning of that, of
// the question as it was shown; empty: the question as it is.
type verdict struct {
	reply  task.Reply
	digest string
	always bool
}

// minDigest is how much of a digest is enough.
const minDigest = 8

func digestFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("digest", "", "answer only if the question has this digest, or one that begins so")
}

// questions lists the open questions, oldest first. A session that does not answer is
// noted on stderr, and the others are listed.
func (a *app) questions(ctx context.Context, all bool) ([]openQuestion, error) {
	sessions, err := a.Known(ctx, true, all)
	if err != nil {
		return nil, err
	}
	lists, errs := console.Each(ctx, sessions, func(ctx context.Context, api control.API) (control.Approvals, error) {
		return api.Approvals(ctx, control.ApprovalsRequest{})
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	open := []openQuestion{}
	for i, list := range lists {
		if errs[i] != nil {
			a.Note("%v", errs[i])
		}
		for _, q := range list.Questions {
			open = append(open, opened(q, sessions[i]))
		}
	}
	slices.SortStableFunc(open, func(x, y openQuestion) int { return x.At.Compare(y.At) })
	return open, nil
}

// decide answers the one open question that ref means. What is answered is what
// was read of it just now: its digest goes along.
func (a *app) decide(ctx context.Context, ref string, all bool, done string, v verdict) error {
	q, err := a.question(ctx, ref, all)
	if err != nil {
		return err
	}
	reply := v.reply
	if v.digest != "" && (len(v.digest) < minDigest || !strings.HasPrefix(q.Digest, v.digest)) {
		return console.Conflict(fmt.Sprintf("answer question %s: digest mismatch: it is %.16s, not %.64s, so the question is not the one that was shown", q.ID, q.Digest, v.digest), fmt.Sprintf("look at it with `drover approvals show %s`, and give %d characters or more", q.ID, minDigest))
	}
	req := control.DecideRequest{ID: q.ID, Digest: q.Digest, Actor: task.ByUser}
	if v.always {
		if req.Always = q.Suggest; q.Suggest == "" {
			return console.Usage(fmt.Sprintf("question %s: no rule can allow this call permanently", q.ID),
				"allow it without --always")
		}
		if _, err := fmt.Fprintf(a.Stdout, "%s: %s\n", console.Cell(q.ID, 40), console.Written(q.Suggest)); err != nil {
			return err
		}
	}
	if q.Kind == task.Form && reply.Text != "" {
		reply.Text, reply.Input = "", json.RawMessage(reply.Text)
	}
	if err := q.Check(reply); err != nil {
		return console.Usage(fmt.Sprintf("question %s: %v", q.ID, err), advice(q.Question))
	}
	api, close, err := q.session.Open(ctx)
	if err != nil {
		return err
	}
	defer close()
	req.Reply = reply
	if err := api.Decide(ctx, req); err != nil {
		return fmt.Errorf("answer %s: %w", q.ID, err)
	}
	return a.Printf("%s %s: %s of %s\n", done, console.Cell(q.ID, 40), console.Cell(q.Tool, 60),
		console.Cell(string(q.Task), 40))
}

// question finds what ref means as [console.Console.Resolve] finds tasks.
func (a *app) question(ctx context.Context, ref string, all bool) (q openQuestion, err error) {
	for _, where := range console.SearchOrder(ref, all) {
		open, listed := a.questions(ctx, where[0].All)
		if listed != nil {
			return q, listed
		}
		if q, err = pickQuestion(open, ref); !console.NotFound(err) {
			return q, err
		}
	}
	return q, err
}

func pickQuestion(open []openQuestion, ref string) (openQuestion, error) {
	var hits []openQuestion
	var matches []string
	for _, q := range open {
		if q.ID == ref {
			return q, nil
		}
		if ref != "" && strings.HasPrefix(q.ID, ref) {
			hits, matches = append(hits, q), append(matches, q.ID)
		}
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return openQuestion{}, notOpen(ref)
	}
	return openQuestion{}, console.SeveralMatches(ref, matches)
}

func notOpen(ref string) error {
	return console.Missing(fmt.Sprintf("no question %q is open: it has been answered or has expired", ref),
		"see `drover approvals --all-sessions`")
}

// advice says how a question is answered.
func advice(q task.Question) string {
	if q.Kind == task.Choice {
		return "`drover approvals answer " + q.ID + " TEXT`, or deny"
	}
	if q.Kind == task.Form {
		return "`drover approvals answer " + q.ID + " JSON`, or deny"
	}
	return "`drover approvals allow " + q.ID + "`, or deny"
}

// printQuestion shows all there is of a question, and nothing of it alive.
func (a *app) printQuestion(q openQuestion) error {
	now := a.Now()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s  %s, by %s in session %s", console.Cell(q.ID, 40), console.ExactCell(q.Title(a.Cwd), 100),
		console.Ago(now, q.At), console.Asker(q.Question), console.Cell(string(q.Session), 40))
	b.WriteString(console.QuestionBody(q.Question, now))
	fmt.Fprintf(&b, "  %s\n", advice(q.Question))
	if q.Suggest != "" {
		fmt.Fprintf(&b, "  always: `drover approvals allow %s --always` also %s\n", console.Cell(q.ID, 40),
			console.Written(q.Suggest))
	}
	_, err := a.Stdout.Write(b.Bytes())
	return err
}

// watchQuestions prints the open questions and then each new one, of sessions that start later too.
func (a *app) watchQuestions(ctx context.Context, all, asJSON bool) error {
	ctx, cancel := context.WithCancel(ctx)
	asked, failed := make(chan openQuestion), make(chan error, 1)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	var mu sync.Mutex
	seen := map[task.ID]map[string]bool{} // by session; guarded by mu
	group.Go(func() {
		failed <- a.FollowSessions(ctx, all, console.WatchTick, func(ctx context.Context, s console.Session) {
			api, done, err := s.Open(ctx)
			if err != nil {
				return // it has just ended, or is found again
			}
			defer done()
			id := s.Info().Session
			mu.Lock()
			before := seen[id]
			mu.Unlock()
			open := console.FollowQuestions(ctx, api, before, func(q task.Question) {
				select {
				case asked <- opened(q, s):
				case <-ctx.Done():
				}
			})
			mu.Lock()
			defer mu.Unlock()
			seen[id] = open
		})
	})
	for {
		select {
		case q := <-asked:
			if err := a.printWatched(q, asJSON); err != nil {
				return err
			}
		case err := <-failed:
			return err
		}
	}
}

func (a *app) printWatched(q openQuestion, asJSON bool) error {
	if !asJSON {
		return a.printQuestion(q)
	}
	data, err := console.Marshal(q, "")
	if err != nil {
		return err
	}
	_, err = a.Stdout.Write(data)
	return err
}

// completeQuestions offers the IDs of open questions.
func (a *app) completeQuestions(all *bool) cobra.CompletionFunc {
	return console.Offer(func(ctx context.Context) (ids []console.Word) {
		open, _ := a.questions(ctx, *all) // without them there is nothing to offer
		for _, q := range open {
			ids = append(ids, console.Word{Text: q.ID, About: q.Tool + " " + q.Reason})
		}
		return ids
	})
}
