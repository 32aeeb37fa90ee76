"""Public reports rebuilt from their facts, first half: every case with the files a run of that kind leaves."""

import cases_a_again
import cases_a_numbers
import cases_a_pictures
import cases_a_saving
import cases_a_text
import cases_a_tokens
import cases_a_training

CASES = [
    *cases_a_numbers.CASES,
    *cases_a_training.CASES,
    *cases_a_text.CASES,
    *cases_a_tokens.CASES,
    *cases_a_pictures.CASES,
    *cases_a_saving.CASES,
    *cases_a_again.CASES,
]
