import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError
from jinja2.exceptions import SecurityError

from tuneclinic.probes.data.bounds import Refused, Stopped
from tuneclinic.probes.data.sandbox import Renderer

CHAT = [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Hello."}]
GROWING = "{{% set ns = namespace(x={0}) %}}{{% for i in range(100) %}}{{% set ns.x = {1} %}}{{% endfor %}}{{{{ ns.x }}}}"
TOO_MUCH = {
    "range": "{% for i in range(10**9) %}x{% endfor %}",
    "nested loops": "{% for i in range(20000) %}{% for j in range(20000) %}{% endfor %}{% endfor %}",
    "repeated text": "{{ 'a' * 10**10 }}",
    "repeated list": "{% set l = [1] * 999999999 %}",
    "power": "{{ 10**10**10 }}",
    "squares": GROWING.format("10", "ns.x * ns.x"),
    "doubled by ~": GROWING.format("'aa'", "ns.x ~ ns.x"),
    "doubled by +": GROWING.format("'aa'", "ns.x + ns.x"),
    "doubled list": GROWING.format("[1]", "ns.x + ns.x"),
    "nested lists": GROWING.format("[1]", "[ns.x, ns.x]"),
    "nested tuples": GROWING.format("()", "(ns.x, ns.x)"),
    "nested mappings": GROWING.format("{}", "{'a': ns.x, 'b': ns.x}"),
    "nested dict calls": GROWING.format("1", "dict(a=ns.x, b=ns.x)"),
    "nested namespaces": GROWING.format("1", "namespace(a=ns.x, b=ns.x)"),
    "lists in a row": "{% set l = [1] %}" + "{% set l = [l, l] %}" * 200 + "{{ l }}",
    "center filter": "{{ 'a' | center(10**9) }}",
    "center method": "{{ 'a'.center(1000000000) }}",
    "format method": "{{ '{:>999999999}'.format(1) }}",
    "format by item": "{{ 'x'['format'] and '{:>999999999}'['format'](1) }}",
    "format by attr": "{{ ('{:>999999999}' | attr('format'))(1) }}",
    "computed width": "{{ '{:{}}'.format(1, 999999999) }}",
    "percent": "{{ '%999999999d' % 1 }}",
    "percent star": "{{ '%*d' % (999999999, 1) }}",
    "format filter": "{{ '%999999999d' | format(1) }}",
    "replace filter": "{% set a = 'a' * 2000000 %}{{ a | replace('a', a) }}",
    "replace method": "{% set a = 'a' * 2000000 %}{{ a.replace('', a) }}",
    "join filter": "{% set a = 'a' * 2000000 %}{{ range(20000) | join(a) }}",
    "join method": "{% set a = 'a' * 2000000 %}{{ a.join(['x'] * 20000) }}",
    "macro output": "{% set a = 'a' * 2000000 %}{% macro m() %}{% for i in range(20000) %}{{ a }}{% endfor %}{% endmacro %}{{ m() }}",
    "set block": "{% set b %}{% for i in range(20000) %}{{ 'a' * 100000 }}{% endfor %}{% endset %}",
    "filter block": "{% filter upper %}{% for i in range(20000) %}{{ 'a' * 100000 }}{% endfor %}{% endfilter %}",
    "forking macro": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "comparison": GROWING.format("[1]", "[ns.x, ns.x]").replace("{{ ns.x }}", "{{ ns.x == ns.x }}"),
    "sum": "{% for i in range(20000) %}{{ range(20000) | sum }}{% endfor %}",
    "batch": "{{ [1] | batch(20000, 'x' * 100000) | list }}",
    "deep loops": "{% for i in [1] %}" * 30 + "{% endfor %}" * 30,
    "long source": "{# " + "x" * 70000 + " #}",
    "many tokens": "{{ 1" + "+1" * 20000 + " }}",
}
BROKEN = {
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursive loop": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "brackets": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "not": "{{ " + "not " * 5000 + "1 }}",
    "ifs": "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "syntax": "{% for %}",
    "unknown filter": "{{ 'a' | urlize }}",
    "expandtabs": "{{ 'a'.expandtabs(1000) }}",
    "lipsum": "{{ lipsum(n=5) }}",
}
FORBIDDEN = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='x') }}",
]


def render(template, messages=CHAT):
    return Renderer(template, {"bos_token": "<s>", "eos_token": "</s>"})(messages)


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_template_that_would_take_too_much_is_stopped(name):
    with pytest.raises(Stopped):
        render(TOO_MUCH[name])


@pytest.mark.parametrize("name", BROKEN)
def test_a_template_that_fails_says_so(name):
    with pytest.raises(TemplateError):
        render(BROKEN[name])


@pytest.mark.parametrize("template", FORBIDDEN)
def test_a_template_reaches_nothing_of_python(template):
    with pytest.raises(SecurityError):
        render(template)


@pytest.mark.parametrize(
    "template", ["{{ raise_exception.__globals__ }}", "{{ '{0.__class__}'.format(1) }}", "{{ messages | attr('__class__') }}"]
)
def test_unsafe_attributes_print_nothing(template):
    assert render(template) == ""


def test_the_trainers_conventions():
    assert (
        render("{% for m in messages %}\n  {% if loop.first %}\n{{ bos_token }}{% endif %}\n{{ m.role }}{% endfor %}")
        == "<s>user" + "assistant"
    )
    assert render("{% generation %}{{ messages[1].content }}{% endgeneration %}") == "Hello."
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert render("{{ '<é>' | tojson }}") == '"<é>"'
    assert json.loads(render("{{ messages | tojson(indent=2) }}")) == CHAT
    assert render("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}") == "TrueTrueFalse"
    assert len(render("{{ strftime_now('%d %b %Y') }}")) == 11
    assert render("{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}") == "1/2False 2/2True "
    assert render("{% set a, b = (1, 2) %}{% for k, v in {'x': 1}.items() %}{{ k }}{{ v + a + b }}{% endfor %}") == "x4"
    assert (
        render("{{ messages | map(attribute='content') | join(' | ') }}{{ (messages | last).role }}")
        == "Hi there | Hello.assistant"
    )
    assert render("{{ missing_name | upper if missing_name is defined else 'none' }}") == "none"
    with pytest.raises(Refused, match="must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet="{}%#'\"()[]~+*|.,:= \n-abefinormsx0123456789_", max_size=80), st.lists(st.text(max_size=20), max_size=4))
def test_any_text_as_a_template_ends_within_a_second(inner, texts):
    started = time.thread_time()
    for template in (inner, "{{ " + inner + " }}", "{% for m in messages %}{{ m.content " + inner + " }}{% endfor %}"):
        try:
            out = render(template, [{"role": "user", "content": text} for text in texts])
        except TemplateError:
            continue
        assert isinstance(out, str)
    assert time.thread_time() - started < 3, "three templates, each stopped within a second of CPU time"
