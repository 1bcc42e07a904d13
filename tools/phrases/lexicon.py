"""The words of the phrase corpus: a table for each part of speech, first English, then German.

Columns are separated by blanks; `_` stands for a blank inside a cell and `-` for an empty cell.
Each noun has a group, so that sentences make sense: apples are eaten, and letters read. A verb
names the groups of its objects, or single nouns, and an adjective those of the nouns that it
describes.
"""

from typing import NamedTuple

_WIDE_GROUPS = {
    "person": "name adult youth kin",
    "living": "name adult youth kin animal",
    "portable": "text mail clothes thing luggage",
    "goods": "text clothes thing luggage device vehicle",
    "space": "home place",
}

# Group, English singular and plural, German singular and plural, gender.
# "Junge/Jungen": such nouns have an ending in the accusative and dative singular.
_NOUNS = """
name       Anna       -           Anna          -           f
name       Maria      -           Maria         -           f
name       Peter      -           Peter         -           m
name       Paul       -           Paul          -           m
adult      man        men         Mann          Männer      m
adult      woman      women       Frau          Frauen      f
adult      guest      guests      Gast          Gäste       m
adult      king       kings       König         Könige      m
adult      queen      queens      Königin       Königinnen  f
youth      boy        boys        Junge/Jungen  Jungen      m
youth      girl       girls       Mädchen       Mädchen     n
youth      child      children    Kind          Kinder      n
kin        father     -           Vater         -           m
kin        mother     -           Mutter        -           f
kin        brother    brothers    Bruder        Brüder      m
kin        sister     sisters     Schwester     Schwestern  f
kin        uncle      uncles      Onkel         Onkel       m
kin        aunt       aunts       Tante         Tanten      f
animal     dog        dogs        Hund          Hunde       m
animal     cat        cats        Katze         Katzen      f
animal     horse      horses      Pferd         Pferde      n
animal     bird       birds       Vogel         Vögel       m
animal     bear       bears       Bär/Bären     Bären       m
food       apple      apples      Apfel         Äpfel       m
food       egg        eggs        Ei            Eier        n
food       cake       cakes       Kuchen        Kuchen      m
dish       bread      -           Brot          -           n
dish       meat       -           Fleisch       -           n
dish       soup       -           Suppe         -           f
drink      milk       -           Milch         -           f
drink      water      -           Wasser        -           n
drink      coffee     -           Kaffee        -           m
text       book       books       Buch          Bücher      n
text       newspaper  newspapers  Zeitung       Zeitungen   f
mail       letter     letters     Brief         Briefe      m
clothes    coat       coats       Mantel        Mäntel      m
clothes    hat        hats        Hut           Hüte        m
clothes    dress      dresses     Kleid         Kleider     n
clothes    jacket     jackets     Jacke         Jacken      f
entry      window     windows     Fenster       Fenster     n
entry      door       doors       Tür           Türen       f
luggage    suitcase   suitcases   Koffer        Koffer      m
luggage    bag        bags        Tasche        Taschen     f
device     lamp       lamps       Lampe         Lampen      f
device     radio      radios      Radio         Radios      n
device     computer   computers   Computer      Computer    m
vehicle    car        cars        Auto          Autos       n
vehicle    bicycle    bicycles    Fahrrad       Fahrräder   n
thing      ball       balls       Ball          Bälle       m
thing      key        keys        Schlüssel     Schlüssel   m
thing      picture    pictures    Bild          Bilder      n
thing      watch      watches     Uhr           Uhren       f
furniture  table      tables      Tisch         Tische      m
furniture  chair      chairs      Stuhl         Stühle      m
furniture  bed        beds        Bett          Betten      n
home       garden     gardens     Garten        Gärten      m
home       house      houses      Haus          Häuser      n
home       room       rooms       Zimmer        Zimmer      n
home       kitchen    kitchens    Küche         Küchen      f
place      park       parks       Park          Parks       m
place      forest     forests     Wald          Wälder      m
place      school     schools     Schule        Schulen     f
place      city       cities      Stadt         Städte      f
"""

# English, German, its stem before endings if it differs; both comparatives; what it describes.
_ADJECTIVES = """
old        alt         -     older           älter     adult,animal,goods,furniture,space
young      jung        -     younger         jünger    adult,animal
little     klein       -     -               -         youth,dog,cat,bird
friendly   freundlich  -     -               -         adult,youth,kin
tired      müde        müd   -               -         adult,youth,kin
happy      glücklich   -     -               -         adult,youth,kin
sad        traurig     -     -               -         adult,youth,kin
sick       krank       -     -               -         adult,youth,kin,animal
hungry     hungrig     -     -               -         adult,youth,kin,animal
big        groß        -     bigger          größer    animal,food,luggage,furniture,space
small      klein       -     smaller         kleiner   food,luggage,furniture,space
beautiful  schön       -     more_beautiful  schöner   clothes,picture,watch,horse,space
new        neu         -     newer           neuer     goods,furniture
expensive  teuer       teur  more_expensive  teurer    clothes,device,vehicle,watch
heavy      schwer      -     heavier         schwerer  luggage,furniture
red        rot         -     -               -         clothes,luggage,vehicle,ball,apple
white      weiß        -     -               -         clothes,animal,entry
black      schwarz     -     -               -         clothes,animal,vehicle
fresh      frisch      -     -               -         food,dish
hot        heiß        -     -               -         drink,dish
cold       kalt        -     -               -         drink,dish
good       gut         -     -               -         food,dish,drink,text
long       lang        -     longer          länger    book,mail
broken     kaputt      -     -               -         device,vehicle,entry,watch
dirty      schmutzig   -     -               -         clothes,vehicle
"""

# By what a verb governs and its subjects: English infinitive, present (the participle where
# something goes on, the third person where it is a state, nothing where only the past is natural)
# and past; German infinitive ("auf|machen" is separable), third person and participle (with "*"
# where the perfect takes sein); where it is done; its objects.
_VERBS = {
    ("acc", "person"): """
read     reading     read       lesen        liest     gelesen       any  text,mail
write    writing     wrote      schreiben    schreibt  geschrieben   home book,mail
eat      eating      ate        essen        isst      gegessen      home food,dish
drink    drinking    drank      trinken      trinkt    getrunken     home drink
cook     cooking     cooked     kochen       kocht     gekocht       -    egg,meat,soup
bake     baking      baked      backen       backt     gebacken      -    cake,bread
buy      buying      bought     kaufen       kauft     gekauft       -    goods,food,dish,furniture
sell     selling     sold       verkaufen    verkauft  verkauft      -    goods,food,horse,house
look_for looking_for looked_for suchen       sucht     gesucht       any  living,portable
find     -           found      finden       findet    gefunden      any  animal,portable
forget   -           forgot     vergessen    vergisst  vergessen     -    portable
wear     wearing     wore       tragen       trägt     getragen      -    clothes
carry    carrying    carried    tragen       trägt     getragen      -    luggage,chair,table
wash     washing     washed     waschen      wäscht    gewaschen     -    clothes,vehicle,dog,horse
repair   repairing   repaired   reparieren   repariert repariert     -    device,vehicle,watch,entry
paint    painting    painted    malen        malt      gemalt        any  picture,horse,bird
feed     feeding     fed        füttern      füttert   gefüttert     -    animal
visit    visiting    visited    besuchen     besucht   besucht       -    person
open     opening     opened     auf|machen   macht     aufgemacht    -    entry,luggage
close    closing     closed     zu|machen    macht     zugemacht     -    entry,luggage
turn_on  turning_on  turned_on  ein|schalten schaltet  eingeschaltet -    device
turn_off turning_off turned_off aus|schalten schaltet  ausgeschaltet -    device
look_at  looking_at  looked_at  an|sehen     sieht     angesehen     -    living,picture,clothes
call     calling     called     an|rufen     ruft      angerufen     -    person
pick_up  picking_up  picked_up  ab|holen     holt      abgeholt      -    person
invite   inviting    invited    ein|laden    lädt      eingeladen    -    person
love     loves       loved      lieben       liebt     geliebt       -    living
know     knows       -          kennen       kennt     gekannt       -    living,text,city
need     needs       needed     brauchen     braucht   gebraucht     -    goods,furniture
have     has         -          haben        hat       gehabt        -    goods,animal,food,mail
""",
    ("acc", "living"): """
see   sees   saw    sehen  sieht  gesehen  any  living
hear  hears  heard  hören  hört   gehört   -    living,radio
""",
    ("dat", "person"): """
help       helping       helped       helfen     hilft      geholfen     home  person
thank      thanking      thanked      danken     dankt      gedankt      -     person
answer     answering     answered     antworten  antwortet  geantwortet  -     person
listen_to  listening_to  listened_to  zu|hören   hört       zugehört     -     person
""",
    ("dat", "living"): """
follow  following  followed  folgen  folgt  *gefolgt  -  living
""",
    ("auf acc", "living"): """
wait_for  waiting_for  waited_for  warten  wartet  gewartet  any  person
""",
    ("mit dat", "person"): """
talk_to    talking_to    talked_to    sprechen  spricht  gesprochen  any  person
play_with  playing_with  played_with  spielen   spielt   gespielt    any  youth,dog,cat,ball
""",
    ("nothing", "person"): """
work    working   worked   arbeiten   arbeitet  gearbeitet   any  -
sing    singing   sang     singen     singt     gesungen     any  -
dance   dancing   danced   tanzen     tanzt     getanzt      any  -
laugh   laughing  laughed  lachen     lacht     gelacht      -    -
cry     crying    cried    weinen     weint     geweint      -    -
arrive  arriving  arrived  an|kommen  kommt     *angekommen  -    -
""",
    ("nothing", "living"): """
sleep        sleeping        slept        schlafen       schläft  geschlafen       any  -
play         playing         played       spielen        spielt   gespielt         any  -
wait         waiting         waited       warten         wartet   gewartet         any  -
wake_up      waking_up       woke_up      auf|wachen     wacht    *aufgewacht      -    -
fall_asleep  falling_asleep  fell_asleep  ein|schlafen   schläft  *eingeschlafen   -    -
come_back    coming_back     came_back    zurück|kommen  kommt    *zurückgekommen  -    -
""",
    ("direction", "person"): """
go  going  went  gehen  geht  *gegangen  -  -
""",
    ("direction", "living"): """
run   running  ran   laufen  läuft  *gelaufen  -  -
come  coming   came  kommen  kommt  *gekommen  -  -
""",
    ("position", "portable"): """
lie  lying  lay  liegen  liegt  gelegen  -  -
""",
    ("transfer", "person"): """
give   giving    gave     geben     gibt     gegeben    -  portable,food
show   showing   showed   zeigen    zeigt    gezeigt    -  goods,animal,house,room
bring  bringing  brought  bringen   bringt   gebracht   -  portable,food,dish,drink
send   sending   sent     schicken  schickt  geschickt  -  text,mail,picture
""",
    ("clause", "person"): """
say    says    said     sagen    sagt    gesagt    -  -
think  thinks  thought  glauben  glaubt  geglaubt  -  -
hope   hopes   hoped    hoffen   hofft   gehofft   -  -
know   knows   knew     wissen   weiß    gewusst   -  -
ask    asks    asked    fragen   fragt   gefragt   -  -
""",
    ("infinitive", "person"): """
try     trying  tried   versuchen  versucht  versucht   -  -
forget  -       forgot  vergessen  vergisst  vergessen  -  -
""",
}

# English auxiliary, the words after it, those of the third person if there is no auxiliary;
# German first and third person singular, plural.
_MODALS = """
can     -           -         kann    kann    können
should  -           -         sollte  sollte  sollten
will    -           -         werde   wird    werden
be      allowed_to  -         darf    darf    dürfen
do      want_to     wants_to  will    will    wollen
do      have_to     has_to    muss    muss    müssen
"""

# Key, person, English subject and object; German nominative, accusative, dative.
# "it" is said of things, in German by the gender of the noun.
_PRONOUNS = """
I     first   I     me    ich  mich  mir
we    plural  we    us    wir  uns   uns
he    third   he    him   er   ihn   ihm
she   third   she   her   sie  sie   ihr
they  plural  they  them  sie  sie   ihnen
who   third   who   who   wer  wen   wem
m     third   it    it    er   ihn   ihm
f     third   it    it    sie  sie   ihr
n     third   it    it    es   es    ihm
"""

# Key, English before a singular and a plural, German, kind of declension.
_DETERMINERS = """
the      the      the      der     definite
this     this     these    dies    der
which    which    which    welch   der
a        a        -        ein     ein
no       a        any      kein    ein
bare     -        -        -       none
two      two      two      zwei    none
three    three    three    drei    none
many     many     many     viele   none
my       my       my       mein    ein
our      our      our      unser   ein
his      his      his      sein    ein
her      her      her      ihr     ein
their    their    their    ihr     ein
Anna's   Anna's   Anna's   Annas   none
Peter's  Peter's  Peter's  Peters  none
"""

# English, German, case.
_PREPOSITIONS = """
in           in      dat
on           auf     dat
under        unter   dat
behind       hinter  dat
in_front_of  vor     dat
next_to      neben   dat
into         in      acc
out_of       aus     dat
to           zu      dat
"""

# When something happens, by the tense it goes with.
TIMES = {
    "present": (("now", "jetzt"), ("today", "heute")),
    "past": (
        ("yesterday", "gestern"),
        ("last week", "letzte Woche"),
        ("this morning", "heute Morgen"),
    ),
    "modal": (("today", "heute"), ("this evening", "heute Abend")),
    "future": (("tomorrow", "morgen"), ("next week", "nächste Woche")),
}

# The weather: now, as a condition, in German with the verb at the end.
BAD_WEATHER = (
    ("it is raining", "it rains", "es regnet"),
    ("it is snowing", "it snows", "es schneit"),
    ("it is cold", "it is cold", "es kalt ist"),
    ("the weather is bad", "the weather is bad", "das Wetter schlecht ist"),
)
SUNSHINE = ("the sun is shining", "the sun shines", "die Sonne scheint")

# What happened at a moment; in German the preterite, singular and plural, at the end of a clause.
EVENTS = (
    ("arrived", "ankam", "ankamen"),
    ("came back", "zurückkam", "zurückkamen"),
    ("came home", "nach Hause kam", "nach Hause kamen"),
    ("woke up", "aufwachte", "aufwachten"),
    ("fell asleep", "einschlief", "einschliefen"),
)


class Noun(NamedTuple):
    """A noun; a plural that it lacks is empty. `oblique`: German accusative and dative."""

    group: str
    english: str
    english_plural: str
    german: str
    oblique: str
    german_plural: str
    gender: str  # m, f or n

    @property
    def is_counted(self):
        """Whether it is used in the plural, too; places are not."""
        return self.english_plural != "" and self.group not in ("home", "place")


class Adjective(NamedTuple):
    """An adjective; German endings are added to `stem`. Comparatives may be empty."""

    english: str
    german: str
    stem: str
    english_comparative: str
    german_comparative: str
    groups: tuple[str, ...]


class Verb(NamedTuple):
    """A verb. Its German forms, except the participle, are without the separable prefix."""

    governs: str
    english: str
    present: str
    past: str
    prefix: str
    infinitive: str
    third: str
    participle: str
    auxiliary: str  # haben or sein
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    places: str

    @property
    def is_action(self):
        """Whether it is an action: such verbs have a progressive form and follow modals."""
        return self.present.partition(" ")[0].endswith("ing")


class Modal(NamedTuple):
    """A modal verb; its English auxiliaries "be" and "do" are not inflected yet."""

    auxiliary: str
    words: str
    third: str
    german: dict[str, str]


class Pronoun(NamedTuple):
    """A pronoun; `person` is "first", "third" (singular) or "plural"."""

    person: str
    english: str
    english_object: str
    nom: str
    acc: str
    dat: str


class Determiner(NamedTuple):
    """An article, or a word in its place; `declension` names the endings that it takes."""

    english: str
    english_plural: str
    german: str
    declension: str


class Preposition(NamedTuple):
    """A German preposition and its case: "in" is a place, "into" a direction."""

    german: str
    case: str


def _rows(table):
    """Yields the cells of each line, with "" for an empty one."""
    for line in table.strip().splitlines():
        yield ["" if cell == "-" else cell.replace("_", " ") for cell in line.split()]


def _groups(cell):
    words = (_WIDE_GROUPS.get(word, word).split() for word in cell.split(",") if word)
    return tuple(group for groups in words for group in groups)


def _noun(group, english, english_plural, german, german_plural, gender):
    german, _, oblique = german.partition("/")
    return Noun(group, english, english_plural, german, oblique or german, german_plural, gender)


def _adjective(english, german, stem, *comparatives_and_groups):
    *comparatives, groups = comparatives_and_groups
    return Adjective(english, german, stem or german, *comparatives, _groups(groups))


def _verb(governs, subjects, row):
    english, present, past, infinitive, third, participle, places, objects = row
    prefix, _, infinitive = infinitive.rpartition("|")
    auxiliary = "sein" if participle.startswith("*") else "haben"
    participle = participle.removeprefix("*")
    return Verb(
        governs, english, present, past, prefix, infinitive, third, participle, auxiliary,
        _groups(subjects), _groups(objects), places,
    )  # fmt: skip


def _modal(auxiliary, words, third, *german):
    return Modal(auxiliary, words, third, dict(zip(PERSONS, german, strict=True)))


PERSONS = ("first", "third", "plural")
PEOPLE = _groups("person")
NOUNS = tuple(_noun(*row) for row in _rows(_NOUNS))
ADJECTIVES = tuple(_adjective(*row) for row in _rows(_ADJECTIVES))
VERBS = tuple(_verb(*use, row) for use, table in _VERBS.items() for row in _rows(table))
# "Be" has forms of its own in both languages; what is said of the subject is a complement.
BE = Verb("complement", "be", "is", "was", "", "sein", "ist", "gewesen", "sein", (), (), "")
MODALS = tuple(_modal(*row) for row in _rows(_MODALS))
PRONOUNS = {key: Pronoun(*row) for key, *row in _rows(_PRONOUNS)}
DETERMINERS = {key: Determiner(*row) for key, *row in _rows(_DETERMINERS)}
PREPOSITIONS = {key: Preposition(*row) for key, *row in _rows(_PREPOSITIONS)}
