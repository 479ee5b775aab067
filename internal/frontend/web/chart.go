package web

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The measures of a chart, in units of its drawing.
const (
	chartWidth, chartHeight        = 640, 200
	chartLeft, chartTop, chartFoot = 84, 14, 28
	chartTicks                     = 4 // at most, on the vertical axis
	chartLabels                    = 6 // at most, on the horizontal axis
)

// period is a range of time in equal parts.
type period struct {
	Name  string // in the address of the page
	Title string
	step  time.Duration
	parts int
	label string // layout of a time below the axis
}

// periods are the periods that a page of charts can show.
func periods() []period {
	const day = 24 * time.Hour
	return []period{
		{"hour", "hour", time.Minute, 60, "15:04"}, {"day", "day", 30 * time.Minute, 48, "15:04"},
		{"week", "week", 6 * time.Hour, 28, "Mon 2 15:04"}, {"month", "30 days", day, 30, "Jan 2"},
	}
}

// begin is the begin of the first part. Parts begin at whole steps of the day, and now is in the last one.
func (p period) begin(now time.Time) time.Time {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	last := midnight.Add(now.Sub(midnight).Truncate(p.step))
	return last.Add(-time.Duration(p.parts-1) * p.step)
}

// part is the number of the part of a time; below 0 or the number of parts: it is outside of the period.
func (p period) part(begin, at time.Time) int {
	if at.Before(begin) {
		return -1
	}
	return int(min(at.Sub(begin)/p.step, time.Duration(p.parts)))
}

// at is the label of a part.
func (p period) at(begin time.Time, n int) string {
	t := begin.Add(time.Duration(n) * p.step)
	if p.step >= 24*time.Hour {
		t = t.Add(p.step / 2) // after a change of clocks a day does not begin at midnight
	}
	return t.Format(p.label)
}

// chart is numbers over time as a drawing and as a table.
type chart struct {
	ID, Title, Summary string
	Width, Height      int
	Left, Right, Base  int // of the drawing area
	Bars               []bar
	Ticks, Labels      []mark
}

// bar is one number of a chart.
type bar struct {
	X, Y, W, H float64
	At, Text   string
}

// mark is a label of an axis.
type mark struct {
	Place float64
	Text  string
}

// measure formats the values of a chart.
type measure struct {
	least float64 // minimum distance of two lines of the axis
	axis  func(float64) string
	exact func(float64) string
}

// charted draws values, one for each part of a period.
func charted(id, title string, p period, begin time.Time, values []float64, m measure) chart {
	c := chart{ID: id, Title: title, Width: chartWidth, Height: chartHeight, Left: chartLeft, Right: chartWidth,
		Base: chartHeight - chartFoot}
	most, at := 0.0, 0
	for n, v := range values {
		if v > most {
			most, at = v, n
		}
	}
	step := max(tick(most), m.least)
	top := max(math.Ceil(most/step-1e-9), 1) * step
	height := float64(c.Base - chartTop)
	up := func(v float64) float64 { return round(float64(c.Base) - v/top*height) }
	for v := 0.0; v <= top+step/2; v += step {
		c.Ticks = append(c.Ticks, mark{up(v), m.axis(v)})
	}
	wide := float64(c.Right-c.Left) / float64(len(values))
	every := (len(values) + chartLabels - 1) / chartLabels
	for n, v := range values {
		x := round(float64(c.Left) + float64(n)*wide)
		c.Bars = append(c.Bars, bar{X: x, Y: up(v), W: round(wide * 0.85), H: round(v / top * height),
			At: p.at(begin, n), Text: m.exact(v)})
		if n%every == 0 {
			c.Labels = append(c.Labels, mark{x, p.at(begin, n)})
		}
	}
	c.Summary = "none"
	if most > 0 {
		c.Summary = fmt.Sprintf("at most %s, at %s", m.exact(most), p.at(begin, at))
	}
	return c
}

func round(v float64) float64 { return math.Round(v*10) / 10 }

// tick is the distance of the lines of an axis that reaches most: 1, 2 or 5 of a power of ten.
func tick(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most/chartTicks)))
	for _, f := range []float64{1, 2, 5} {
		if most/(f*power) <= chartTicks {
			return f * power
		}
	}
	return 10 * power
}

// grouped formats a count in groups of three digits.
func grouped(v float64) string {
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	var b strings.Builder
	for n, d := range digits {
		if n > 0 && (len(digits)-n)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
