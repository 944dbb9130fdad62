/* ill_cards.c - owns the list of cards that are left out, and which rank gets which of the others.
 */
#include "launcher/supervise/ill_cards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cddpi_ill_card *find(struct cddpi_ill_cards *cards, const char *name)
{
    for (int i = 0; i < cards->count; i++) {
        if (strcmp(cards->list[i].name, name) == 0) {
            return &cards->list[i];
        }
    }
    return NULL;
}

/* Whether @p name, of @p length characters, can be an entry of CUDA_VISIBLE_DEVICES. */
static bool is_name(const char *name, size_t length)
{
    return length > 4 && length < CDDPI_CARD_NAME_BYTES && strncmp(name, "GPU-", 4) == 0 &&
           strspn(name + 4, "0123456789abcdef-") == length - 4;
}

/* Cut "/SEEN" off a card's name. Returns SEEN; 0: it is missing, or no such number. */
static int take_seen(char *name)
{
    char *slash = strchr(name, '/');
    long seen = 0;

    if (slash != NULL) {
        seen = strtol(slash + 1, NULL, 10);
        *slash = '\0';
    }
    return seen > 0 && seen <= CDDPI_MACHINE_GPUS ? (int)seen : 0;
}

/* The number that the card had before ranks got others. */
static int first_index(const struct cddpi_ill_cards *cards, const struct cddpi_ill_card *card)
{
    for (int i = 0; i < cards->first_count; i++) {
        if (strcmp(cards->first[i], card->name) == 0) {
            return i;
        }
    }
    return card->index;
}

void cddpi_ill_cards_take(struct cddpi_ill_cards *cards, int rank, int index, const char *text,
                          size_t bytes)
{
    struct cddpi_ill_card card = {.index = index, .rank = rank};
    const char *space = memchr(text, ' ', bytes);
    struct cddpi_ill_card *known;

    if (space == NULL || space - text >= CDDPI_CARD_NAME_BYTES) {
        return;
    }
    snprintf(card.name, sizeof card.name, "%.*s", (int)(space - text), text);
    card.seen = take_seen(card.name);
    card.index = first_index(cards, &card);
    snprintf(card.fault, sizeof card.fault, "%.*s", (int)(text + bytes - space - 1), space + 1);
    if (!is_name(card.name, strlen(card.name))) {
        return;
    }
    known = find(cards, card.name);
    if (known != NULL) {
        known->is_used_yet = known->is_out;
    } else if (cards->count < CDDPI_MACHINE_GPUS) {
        cards->list[cards->count++] = card;
    }
}

bool cddpi_ill_cards_are_new(const struct cddpi_ill_cards *cards)
{
    for (int i = 0; i < cards->count; i++) {
        if (!cards->list[i].is_out || cards->list[i].is_used_yet) {
            return true;
        }
    }
    return false;
}

/* Names of cards. */
struct card_names {
    char names[2 * CDDPI_MACHINE_GPUS][CDDPI_CARD_NAME_BYTES];
    int count;
};

static bool has(const struct card_names *list, const char *name)
{
    for (int i = 0; i < list->count; i++) {
        if (strcmp(list->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void insert(struct card_names *list, int at, const char *name)
{
    if (list->count == 2 * CDDPI_MACHINE_GPUS || has(list, name)) {
        return;
    }
    at = at < list->count ? at : list->count;
    memmove(list->names[at + 1], list->names[at],
            (size_t)(list->count - at) * sizeof list->names[0]);
    snprintf(list->names[at], sizeof list->names[at], "%s", name);
    list->count++;
}

static void read_names(const char *text, struct card_names *out)
{
    out->count = 0;
    while (*text != '\0' && out->count < CDDPI_MACHINE_GPUS) {
        size_t length = strcspn(text, "\n");
        char name[CDDPI_CARD_NAME_BYTES];

        if (is_name(text, length)) {
            snprintf(name, sizeof name, "%.*s", (int)length, text);
            insert(out, out->count, name);
        }
        text += length + (text[length] == '\n');
    }
}

/* List the cards in the order of local ranks, as it was before: the driver may not find an ill one
 * any more. */
static void list_before(const struct cddpi_ill_cards *cards, const struct card_names *found,
                        struct card_names *out)
{
    out->count = 0;
    if (!cards->is_known) {
        *out = *found;
        for (int index = 0; index < CDDPI_MACHINE_GPUS; index++) {
            for (int i = 0; i < cards->count; i++) {
                if (cards->list[i].index == index) {
                    insert(out, index, cards->list[i].name);
                }
            }
        }
        return;
    }
    for (int i = 0; i < cards->left_count; i++) {
        insert(out, out->count, cards->left[i]);
    }
    for (int i = 0; i < found->count; i++) {
        insert(out, out->count, found->names[i]);
    }
}

static bool is_usable(struct cddpi_ill_cards *cards, const struct card_names *found,
                      const char *name)
{
    return has(found, name) && find(cards, name) == NULL;
}

static void give(struct cddpi_ill_cards *cards, const char *name)
{
    if (cards->left_count < CDDPI_MACHINE_GPUS) {
        memcpy(cards->left[cards->left_count++], name, CDDPI_CARD_NAME_BYTES);
    }
}

/* Give the first @p ranks of @p before, but for those that cannot be used, to the same ranks as
 * before. @p usable of them can be used in all. */
static void divide(struct cddpi_ill_cards *cards, const struct card_names *before,
                   const struct card_names *found, int ranks, int usable)
{
    int kept = usable >= ranks ? ranks : 0; /* so many positions stay as they are */
    int spare = kept;

    cards->left_count = 0;
    for (int i = 0; i < kept; i++) {
        if (is_usable(cards, found, before->names[i])) {
            give(cards, before->names[i]);
            continue;
        }
        while (!is_usable(cards, found, before->names[spare])) {
            spare++;
        }
        give(cards, before->names[spare++]);
    }
    for (; spare < before->count; spare++) {
        if (is_usable(cards, found, before->names[spare])) {
            give(cards, before->names[spare]);
        }
    }
}

/* Whether ranks share cards: there were fewer than ranks, as one that reported saw. It is not asked
 * if it saw less than the @p before cards that are known of: then a script had given it a part. */
static bool are_shared(const struct cddpi_ill_cards *cards, int before, int ranks)
{
    for (int i = 0; i < cards->count; i++) {
        int seen = cards->list[i].seen;

        if (before <= seen && seen < ranks) {
            return true;
        }
    }
    return false;
}

/* Keep the numbers that cards have. */
static void note_first(struct cddpi_ill_cards *cards, const struct card_names *before)
{
    cards->first_count = before->count < CDDPI_MACHINE_GPUS ? before->count : CDDPI_MACHINE_GPUS;
    memcpy(cards->first, before->names, (size_t)cards->first_count * sizeof cards->first[0]);
}

int cddpi_ill_cards_leave_out(struct cddpi_ill_cards *cards, const char *found, int ranks)
{
    struct card_names there;
    struct card_names before;
    int usable = 0;

    read_names(found, &there);
    list_before(cards, &there, &before);
    for (int i = 0; i < before.count; i++) {
        usable += is_usable(cards, &there, before.names[i]);
    }
    if (!cards->is_known) {
        cards->is_shared = are_shared(cards, before.count, ranks);
        note_first(cards, &before);
    }
    divide(cards, &before, &there, ranks, usable);
    cards->is_known = true;
    for (int i = 0; i < cards->count; i++) {
        cards->list[i].is_out = true;
        cards->list[i].is_used_yet = false;
    }
    return cddpi_ill_cards_serve(cards, ranks);
}

/* --- what the driver is asked for --- */

/* The number of entries of CUDA_VISIBLE_DEVICES. */
static int count_entries(const char *text)
{
    int count = text[0] != '\0';

    for (; *text != '\0'; text++) {
        count += *text == ',';
    }
    return count;
}

/* How many entries ranks' CUDA_VISIBLE_DEVICES has, or could have; 0: a rank has seen other cards,
 * so that its numbers say nothing here. */
static int usual_entries(const struct cddpi_ill_cards *cards, const char *inherited, int ranks)
{
    int count = inherited != NULL ? count_entries(inherited) : cards->list[0].seen;

    for (int i = 0; i < cards->count; i++) {
        if (cards->list[i].seen != count || cards->list[i].index >= count) {
            return 0;
        }
    }
    return inherited != NULL || count >= ranks ? count : 0;
}

/* Write entry @p index of ranks' CUDA_VISIBLE_DEVICES. */
static void write_entry(const struct cddpi_ill_cards *cards, const char *inherited, int index,
                        char out[CDDPI_CARD_NAME_BYTES])
{
    if (cards->is_known) {
        memcpy(out, cards->left[index], CDDPI_CARD_NAME_BYTES);
        return;
    }
    if (inherited == NULL) {
        snprintf(out, CDDPI_CARD_NAME_BYTES, "%d", index);
        return;
    }
    for (int i = 0; i < index; i++) {
        inherited = strchr(inherited, ',') + 1;
    }
    snprintf(out, CDDPI_CARD_NAME_BYTES, "%.*s", (int)strcspn(inherited, ","), inherited);
}

/* Whether that entry is a card that was reported. */
static bool is_reported(struct cddpi_ill_cards *cards, int index)
{
    if (cards->is_known) {
        return find(cards, cards->left[index]) != NULL;
    }
    for (int i = 0; i < cards->count; i++) {
        if (cards->list[i].index == index) {
            return true;
        }
    }
    return false;
}

int cddpi_ill_cards_to_ask(struct cddpi_ill_cards *cards, const char *inherited, int ranks,
                           char *out, size_t bytes)
{
    int entries = cards->is_known ? cards->left_count : usual_entries(cards, inherited, ranks);
    size_t used = 0;
    int count = 0;

    out[0] = '\0';
    for (int i = 0; i < entries && used < bytes; i++) {
        char entry[CDDPI_CARD_NAME_BYTES];

        if (!is_reported(cards, i)) {
            write_entry(cards, inherited, i, entry);
            used += (size_t)snprintf(out + used, bytes - used, "%s%s", count > 0 ? "," : "", entry);
            count++;
        }
    }
    return used < bytes ? count : 0;
}

/* --- what is known --- */

int cddpi_ill_cards_serve(const struct cddpi_ill_cards *cards, int ranks)
{
    bool is_enough = !cards->is_known || cards->left_count >= ranks ||
                     (cards->is_shared && cards->left_count > 0);

    if (cards->must_end) {
        return 0;
    }
    return is_enough ? ranks : cards->left_count;
}

bool cddpi_ill_cards_visible(const struct cddpi_ill_cards *cards, char *out, size_t bytes)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; cards->is_known && i < cards->left_count && used < bytes; i++) {
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", i > 0 ? "," : "",
                                 cards->left[i]);
    }
    return cards->is_known;
}
