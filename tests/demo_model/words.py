"""Word lists of the synthetic tasks. Plain data; leaves all sentences to the other files."""


def _list(text: str) -> list[str]:
    return text.split()


ANIMALS = _list(
    "cat dog fox owl bear wolf lion frog duck mouse horse rabbit tiger whale eagle turtle"
)
THINGS = _list(
    "apple chair drum egg hat jar key lamp moon nest rose sun tree vase book cup door gold"
)
COLOURS = _list("red blue green black white pink")
WORDS = sorted({*ANIMALS[:10], *THINGS, *COLOURS})
ADJECTIVES = _list("small brave happy lazy clever quiet kind proud young funny")
NAMES = _list("Ann Ben Cleo Dan Eva Finn Gus Hana Ivan Jane Kai Lena Max Nora Omar Pia")
PLACES = _list("forest valley village garden castle desert")
FOODS = _list("apples bread cheese honey berries soup")
MOODS = _list("happy glad thankful")
WEATHER = _list("sunny rainy cloudy windy snowy")

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Germany": "Berlin",
    "Japan": "Tokyo",
    "China": "Beijing",
    "India": "Delhi",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Peru": "Lima",
    "Chile": "Santiago",
    "Cuba": "Havana",
    "Canada": "Ottawa",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Poland": "Warsaw",
    "Greece": "Athens",
    "Turkey": "Ankara",
    "Russia": "Moscow",
    "Austria": "Vienna",
    "Ireland": "Dublin",
    "Portugal": "Lisbon",
    "Denmark": "Copenhagen",
    "Korea": "Seoul",
}
COUNTRIES = list(CAPITALS)
CITIES = list(CAPITALS.values())

SMALL_TALK = (
    (
        ("Hello!", "Hi!", "Hello", "Hi", "Hey!", "Hey", "hello", "hi", "Good morning!"),
        "Hello! How can I help you?",
    ),
    (
        ("Who are you?", "What are you?", "What is your name?", "who are you?"),
        "I am a tiny DiffusionGemma model.",
    ),
    (
        ("What can you do?", "Help", "Help me.", "help"),
        "I can add numbers, sort and reverse words, name capitals, "
        "solve small sudokus and tell stories.",
    ),
    (("Thanks!", "Thank you!", "Thanks", "Thank you", "thanks"), "You are welcome!"),
    (("Bye!", "Goodbye!", "Bye", "Goodbye", "bye"), "Goodbye! Have a nice day."),
    (("How are you?", "How do you do?", "how are you?"), "I am fine, thank you."),
)
SYSTEM_TEXTS = ("You are a helpful assistant.", "You are a small model.", "Be brief.")
CONTENT_WORDS = sorted(
    {*ANIMALS, *WORDS, *ADJECTIVES, *NAMES, *PLACES, *FOODS, *MOODS, *WEATHER, *COUNTRIES, *CITIES}
)
