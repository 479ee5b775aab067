package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/replay"
)

// Replay is how a recording is played.
type Replay struct {
	Recording *replay.Recording
	Prompt    *Prompt   // as it was recorded
	Speed     float64   // 1: as recorded; 0: as fast as it goes
	Until     int       // the call of a tool after which the run continues live; 0: none
	Check     io.Writer // compares the replay with the recording and prints the differences; nil: prints the answer
}

func (a *App) record() *cobra.Command {
	var p Prompt
	cmd := &cobra.Command{
		Use: "record [flags of drover -p] FILE [PROMPT | -]",
		Long: "Answer one prompt as `drover -p` does, and write to a new file what models answered, what tools and commands\n" +
			"printed, and every change of every task. The file holds the whole conversation and can be read only by you;\n" +
			"keys and headers of requests are never in it. `drover replay` plays it without network and without a model.",
		ValidArgsFunction: console.CompleteFiles,
		Args:              console.Args(1, -1),
	}
	p.Add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		switch {
		case p.Detach:
			return console.Usage("a detached prompt cannot be recorded", "leave out -d")
		case p.Input == streamJSON:
			return console.Usage("a session that a program drives cannot be recorded", "give the prompt as an argument")
		case p.Continue || p.Resume != "":
			return console.Usage("only a new session can be recorded", "leave out --continue and --resume")
		}
		if err := a.Check(cmd.Context(), &p, words[1:]); err != nil {
			return err
		}
		path := a.Path(words[0])
		var answer error
		err := console.NewFile(path, func(w io.Writer) error {
			answer = a.Record(cmd.Context(), &p, w)
			if _, ok := errors.AsType[*RecordError](answer); ok {
				return answer
			}
			return nil
		})
		if err != nil {
			return err
		}
		return answer
	}
	return cmd
}

// RecordError says that a run could not be recorded.
type RecordError struct{ Err error }

func (e *RecordError) Error() string { return "record the run: " + e.Err.Error() }

func (e *RecordError) Unwrap() error { return e.Err }

func (a *App) replay() *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay [--speed N|max] [--check | --list | --until N [--model MODEL]] FILE",
		Long: "Play a run that `drover record` has recorded in a new session of this folder: models and tools answer what they\n" +
			"answered, commands print what they printed. No command runs, no file is written, no model is asked.\n" +
			"`drover ps` and `drover attach` show it like every session. With --check the exit code is 1 if the events differ.",
		ValidArgsFunction: console.CompleteFiles,
		Args:              console.Args(1, 1),
	}
	cmd.Long += "\n\nWith --until the run is played up to the end of the N-th call of a tool, by the numbers of --list, and then continues\n" +
		"live in this folder, with its models, tools and rules: what the agents had written with Write and Edit by\n" +
		"then is written again, and to-dos are as they were. What commands had changed is not changed again. Commands\n" +
		"that were running then start again."
	until := cmd.Flags().Int("until", 0, "play the run up to the end of the `N`-th call of a tool, and continue live")
	model := cmd.Flags().String("model", "", "with --until, the model of the main agent; default: as it was recorded")
	speed := cmd.Flags().String("speed", "1", "how many times as fast as recorded, or max")
	check := cmd.Flags().Bool("check", false,
		"play at full speed, compare all events with the recording, print only differences")
	list := cmd.Flags().Bool("list", false, "list the tool calls of the recording instead")
	cmd.MarkFlagsMutuallyExclusive("check", "list", "until")
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		path := a.Path(words[0])
		r, err := readRecording(path)
		if err != nil {
			return err
		}
		if *list {
			return a.listRecording(r)
		}
		play := Replay{Recording: r, Prompt: &Prompt{}}
		if err := json.Unmarshal(r.Head.Prompt, play.Prompt); err != nil {
			return fmt.Errorf("read recording %s: its prompt: %w", path, replay.ErrChanged)
		}
		play.Prompt.Format = "text"
		switch tools := r.Tools(); {
		case !cmd.Flags().Changed("until") && *model != "":
			return console.Usage("--model requires --until", "a replay asks no model")
		case !cmd.Flags().Changed("until"):
		case *until < 1 || *until > tools:
			return console.Usage(fmt.Sprintf("--until %d: the recording has %s", *until,
				console.Plural(tools, "call")+" of tools"),
				"see `drover replay --list FILE`")
		case *model != "":
			play.Prompt.Model = *model
		}
		play.Until = *until
		if play.Speed, err = speedOf(*speed); err != nil {
			return err
		}
		if *check {
			play.Speed, play.Check = 0, a.Stdout
		}
		return a.Replay(cmd.Context(), play)
	}
	return cmd
}

func speedOf(text string) (float64, error) {
	if text == "max" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0.01 && n <= 10_000) {
		return 0, console.Usage(fmt.Sprintf("--speed %q: not a speed", text), "give a number such as 1 or 20, or max")
	}
	return n, nil
}

func readRecording(path string) (*replay.Recording, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, console.Missing(fmt.Sprintf("read recording %s: no such file", path), "make one with `drover record`")
	}
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	defer f.Close()
	r, err := replay.Read(f)
	if err != nil {
		return nil, fmt.Errorf("read recording %s: %w", path, err)
	}
	return r, nil
}

// listRecording prints the calls of tools, in the order in which they have ended.
func (a *App) listRecording(r *replay.Recording) error {
	n := 0
	for _, e := range r.Entries {
		if !e.Ran() {
			continue
		}
		n++
		who := string(e.Agent)
		if e.Agent == r.Head.Session {
			who = "main"
		}
		at := (time.Duration(e.MS) * time.Millisecond).Round(100 * time.Millisecond)
		if _, err := fmt.Fprintf(a.Stdout, "%4d  %-8s  %-10s  %-12s  %s\n", n, at, console.Cell(who, 10),
			console.Cell(e.Tool.Name, 12),
			excerpt.Line(string(e.Tool.Input), 100)); err != nil {
			return err
		}
	}
	return nil
}
