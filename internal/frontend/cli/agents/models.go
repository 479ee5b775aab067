package agents

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	models "github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/settings"
)

// modelRow is a model that can be named.
type modelRow struct {
	Alias    string      `json:"alias,omitempty"`
	Name     string      `json:"name"`
	Title    string      `json:"title"` // as people call it
	Provider string      `json:"provider"`
	Default  bool        `json:"default,omitempty"` // used when no model is named
	Ready    bool        `json:"ready"`             // its provider has a key, or an address that needs none
	Window   int64       `json:"window,omitempty"`
	Output   int64       `json:"max_output,omitempty"`
	Price    *modelPrice `json:"price,omitempty"`
}

// modelPrice is dollars for a million tokens.
type modelPrice struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cache_read,omitempty"`
	CacheWrite float64 `json:"cache_write,omitempty"`
}

func (a *app) modelsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "models [--json]",
		Long: "List the short names of models, including those of your settings, and the models whose context window and\n" +
			"price are known. sonnet, opus and haiku stand for the newest model of each family, default for the usual one and\n" +
			"best for the newest opus. Any other name can be given to --model as PROVIDER/NAME. Prices are US dollars for a\n" +
			"million tokens, from a dated table or from models.prices of your settings. A star marks the model that is used\n" +
			"when nobody names one.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := a.Settings("")
			if err != nil {
				return err
			}
			rows, notes := a.models(set)
			for _, n := range notes {
				a.Hint(n)
			}
			if asJSON {
				return console.PrintJSON(a.Stdout, rows)
			}
			return a.printModels(rows)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "a JSON array")
	return cmd
}

// models returns the short names, then the other known models.
func (a *app) models(set settings.Settings) ([]modelRow, []string) {
	table, notes := console.PriceTable(set.Models)
	ready := a.Ready(set)
	row := func(alias, name string) modelRow {
		of, bare, has := strings.Cut(name, "/")
		if !has {
			of, bare = "anthropic", name
		}
		r := modelRow{Alias: alias, Name: name, Title: models.Title(bare), Provider: of, Ready: slices.Contains(ready, of),
			Output: models.MostOutput(bare)}
		r.Window, _ = table.Window(name)
		if p, ok := table.Price(name, 0); ok {
			r.Price = &modelPrice{p.Input, p.Output, p.CacheRead, p.CacheWrite}
		}
		return r
	}
	full := map[string]string{}
	var order []string
	for _, a := range models.Aliases() {
		full[a.Short] = a.Full
		order = append(order, a.Short)
	}
	for _, alias := range slices.Sorted(maps.Keys(set.Models.Aliases)) {
		if _, builtIn := full[alias]; !builtIn {
			order = append(order, alias)
		}
	}
	maps.Copy(full, set.Models.Aliases)
	var rows []modelRow
	for _, alias := range order {
		name := full[alias]
		for range full { // an alias may stand for another
			next := full[name]
			if next == "" || next == name {
				break
			}
			name = next
		}
		rows = append(rows, row(alias, name))
	}
	for _, m := range models.Models() {
		name := m.Name
		if m.Provider != "anthropic" {
			name = m.Provider + "/" + name
		}
		if !slices.ContainsFunc(rows, func(r modelRow) bool { return r.Name == name }) {
			rows = append(rows, row("", name))
		}
	}
	usual := cmp.Or(set.Model, models.Default)
	for i := range rows {
		if rows[i].Default = rows[i].Alias == usual || rows[i].Name == usual; rows[i].Default {
			break
		}
	}
	return rows, notes
}

func (a *app) printModels(rows []modelRow) error {
	lines := [][]string{{"ALIAS", "NAME", "MODEL", "WINDOW", "IN $", "OUT $", "KEY", ""}}
	dollars := func(f float64) string { return strconv.FormatFloat(f, 'g', 4, 64) }
	for _, r := range rows {
		in, written, key, usual := "-", "-", "-", ""
		if r.Price != nil {
			in, written = dollars(r.Price.Input), dollars(r.Price.Output)
		}
		if r.Ready {
			key = "set"
		}
		if r.Default {
			usual = "* current"
		}
		lines = append(lines, []string{cmp.Or(excerpt.Line(r.Alias, 30), "-"), excerpt.Line(r.Title, 30),
			excerpt.Line(r.Name, 60), models.Tokens(r.Window), in, written, key, usual})
	}
	text := a.LayOut(lines, console.Headed)
	_, err := a.Stdout.Write(fmt.Appendf(text, "\nPrices are US dollars for a million tokens, of %s.\n", models.AsOf()))
	return err
}
