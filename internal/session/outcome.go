package session

import (
	"time"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/id"
)

// Outcome is what a session is to reach, judged by a grader against a rubric each time that the agent comes to an end.
type Outcome struct {
	ID string `json:"id"`
	// Event is the event that defined it, which holds the rubric.
	Event       string `json:"event"`
	Description string `json:"description"`
	Max         int    `json:"max"` // evaluations
	Iteration   int    `json:"iteration"`
	Result      string `json:"result"`
	Explanation string `json:"explanation,omitzero"`
	// Evaluation is the event that began the evaluation which is under way, "" if none is.
	Evaluation string    `json:"evaluation,omitzero"`
	Completed  time.Time `json:"completed,omitzero"` // zero while it is worked on
}

// Results of outcomes and of their evaluations.
const (
	OutcomePending       = "pending"
	OutcomeRunning       = "running"
	OutcomeEvaluating    = "evaluating"
	OutcomeSatisfied     = "satisfied"
	OutcomeNeedsRevision = "needs_revision"
	OutcomeMaxIterations = "max_iterations_reached"
	OutcomeFailed        = "failed"
	OutcomeInterrupted   = "interrupted"
)

// Types of the events of evaluations.
const (
	OutcomeEvaluationStart = "span.outcome_evaluation_start"
	OutcomeEvaluationEnd   = "span.outcome_evaluation_end"
)

// DefaultIterations is how often an outcome is evaluated if its owner does not say.
const DefaultIterations = 3

// Outcome returns the outcome that the session works on, nil if there is none.
func (s *State) Outcome() *Outcome {
	if n := len(s.Outcomes); n > 0 && s.Outcomes[n-1].Completed.IsZero() {
		return &s.Outcomes[n-1]
	}
	return nil
}

type outcomeFields struct {
	Outcome     string `json:"outcome_id"`
	Description string `json:"description"`
	Rubric      Rubric `json:"rubric"`
	Max         *int   `json:"max_iterations"`
}

// Rubric is what an outcome is judged by.
type Rubric struct {
	Type    string `json:"type"` // text: files are read when they are sent
	Content string `json:"content"`
}

func (s *State) applyOutcome(e Event) error {
	var body outcomeFields
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	o := Outcome{ID: body.Outcome, Event: e.ID, Description: body.Description, Max: DefaultIterations, Result: OutcomePending}
	if body.Max != nil {
		o.Max = *body.Max
	}
	s.Outcomes = append(s.Outcomes, o)
	s.Unanswered = true
	return nil
}

func (s *State) applyEvaluation(e Event) error {
	o := s.Outcome()
	if o == nil {
		return nil
	}
	if e.Type == OutcomeEvaluationStart {
		o.Evaluation, o.Result = e.ID, OutcomeEvaluating
		return nil
	}
	var body struct {
		Result      string `json:"result"`
		Explanation string `json:"explanation"`
	}
	var private requestEnd
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	if err := json.Unmarshal(e.Private, &private); err != nil {
		return err
	}
	s.Usage.Add(private.Usage)
	o.Evaluation, o.Result, o.Explanation = "", body.Result, body.Explanation
	switch body.Result {
	case OutcomeNeedsRevision:
		// The agent goes on, with a turn's bounds of its own.
		o.Iteration++
		o.Result, s.Unanswered, s.Requests = OutcomeRunning, true, 0
	case OutcomeMaxIterations:
		o.Completed, s.Unanswered, s.Requests = e.At, true, 0
	default:
		o.Completed = e.At
	}
	return nil
}

// defineOutcome logs an outcome. It is processed when it is received.
func (s *Step) defineOutcome(in Input) {
	f := outcomeFields{Outcome: id.New(id.Outcome), Description: in.Description, Rubric: Rubric{"text", in.Rubric}}
	if in.Max > 0 {
		f.Max = &in.Max
	}
	s.add(entry{kind: UserDefineOutcome, thread: true, fields: f})
}

// BeginEvaluation logs that the outcome is being evaluated, unless that was logged by whoever died while doing it.
func (s *Step) BeginEvaluation() {
	o := s.State.Outcome()
	if o == nil || o.Evaluation != "" {
		return
	}
	type fields struct {
		Outcome   string `json:"outcome_id"`
		Iteration int    `json:"iteration"`
	}
	s.add(entry{kind: OutcomeEvaluationStart, thread: true, fields: fields{o.ID, o.Iteration}})
}

// EndEvaluation logs what the grader found: satisfied, needs_revision or failed. The last evaluation that would ask for a
// revision ends the outcome instead. It adds nothing if no evaluation is under way.
func (s *Step) EndEvaluation(result, explanation string, usage Usage) {
	if o := s.State.Outcome(); o != nil && o.Evaluation != "" {
		s.endEvaluation(o, result, explanation, usage)
	}
}

func (s *Step) endEvaluation(o *Outcome, result, explanation string, usage Usage) {
	if result == OutcomeNeedsRevision && o.Iteration+1 >= o.Max {
		result = OutcomeMaxIterations
	}
	type fields struct {
		Start       string     `json:"outcome_evaluation_start_id"`
		Outcome     string     `json:"outcome_id"`
		Iteration   int        `json:"iteration"`
		Result      string     `json:"result"`
		Explanation string     `json:"explanation"`
		Usage       modelUsage `json:"usage"`
	}
	s.add(entry{kind: OutcomeEvaluationEnd, thread: true,
		fields:  fields{o.Evaluation, o.ID, o.Iteration, result, explanation, newModelUsage(usage)},
		private: requestEnd{Usage: usage}})
}

// endOutcome ends the outcome that is worked on because the turn was interrupted.
func (s *Step) endOutcome(usage Usage) {
	if o := s.State.Outcome(); o != nil {
		s.endEvaluation(o, OutcomeInterrupted, "The work was interrupted.", usage)
	}
}

// outcomePrompt tells the agent what to reach.
func outcomePrompt(f outcomeFields) string {
	return "Work on this until it is reached. When you come to an end, your work is judged by the rubric.\n\n" +
		"# Outcome\n" + f.Description + "\n\n# Rubric\n" + f.Rubric.Content
}

// evaluationPrompt tells the agent what an evaluation found; "" if there is nothing to do about it.
func evaluationPrompt(result, explanation string) string {
	switch result {
	case OutcomeNeedsRevision:
		return "Your work was judged by the rubric and needs revision:\n\n" + explanation
	case OutcomeMaxIterations:
		return "Your work was judged by the rubric, and it does not satisfy it yet:\n\n" + explanation +
			"\n\nThis was the last evaluation. Say briefly what is done and what is not; do not go on working."
	default:
		return ""
	}
}

// OutcomeView is an outcome as the wire has it.
type OutcomeView struct {
	Type        string  `json:"type"`
	Outcome     string  `json:"outcome_id"`
	Description string  `json:"description"`
	Iteration   int     `json:"iteration"`
	Result      string  `json:"result"`
	Explanation *string `json:"explanation"`
	Completed   *string `json:"completed_at"`
}

func outcomeViews(outcomes []Outcome) []OutcomeView {
	views := make([]OutcomeView, 0, len(outcomes))
	for _, o := range outcomes {
		v := OutcomeView{
			Type: "outcome_evaluation", Outcome: o.ID, Description: o.Description, Iteration: o.Iteration, Result: o.Result,
			Completed: optionalTime(o.Completed),
		}
		if o.Explanation != "" {
			v.Explanation = &o.Explanation
		}
		views = append(views, v)
	}
	return views
}

// OutcomeRubric reads the rubric from the event that defined an outcome.
func OutcomeRubric(e Event) (string, error) {
	var body outcomeFields
	err := json.Unmarshal(e.Body, &body)
	return body.Rubric.Content, err
}
