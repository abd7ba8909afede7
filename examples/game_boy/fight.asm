; The game, in the notation of assembler.py. Names in capitals come from rom.py (RULES, MEMORY, Ram ...) and art.py.
; h and d always name a fighter: a page of memory, in which l and e choose the field.

; ==== Start, and the loop that runs once for every picture

start:
    di
    ld sp, STACK
.screen_at_rest:                ; the screen may only be switched off between two pictures
    ldh a, [LY]
    cp 144
    jr c, .screen_at_rest
    ld a, 0
    ldh [LCDC], a
    ldh [SCX], a
    ldh [SCY], a
    ld hl, FRAME
    ld bc, $0400
    call clear
    ld hl, object_tiles
    ld de, TILES
    ld bc, OBJECT_TILES_BYTES
    call copy
    ld hl, background_tiles
    ld de, BACKGROUND_TILES
    ld bc, BACKGROUND_TILES_BYTES
    call copy
    ld hl, background_map
    ld de, MAP
    ld bc, $0400
    call copy
    ld hl, $FE00
    ld bc, 160
    call clear
    ld hl, send_objects
    ld de, HIGH_RAM
    ld bc, send_objects_end-send_objects
    call copy
    ld hl, captions
    ld de, SCORES
    ld bc, 20
    call copy
    ld hl, empty_bars
    ld de, BARS
    ld bc, 20
    call copy
    ld a, $AC                   ; any seed but 0
    ld [RANDOM], a
    call new_round
    ld a, $E4                   ; shades 3 2 1 0
    ldh [BGP], a
    ld a, $D0                   ; the player is light ...
    ldh [OBP0], a
    ld a, $F9                   ; ... and the opponent dark
    ldh [OBP1], a
    ld a, $97                   ; screen on, tiles at $8000, objects of 8 x 16, background
    ldh [LCDC], a
    ld a, 1
    ldh [ENABLED], a
    ld a, 0
    ldh [INTERRUPTS], a
    ei
main:
    halt                        ; until the picture is drawn: from here on the screen may be written
    nop
    call HIGH_RAM
    ld hl, SCORES
    ld de, MAP
    ld bc, 20
    call copy
    ld hl, BARS
    ld de, MAP+32
    ld bc, 20
    call copy
    ld hl, FRAME
    inc [hl]
    call update
    call draw
    jr main

clear:                          ; bc bytes from hl on
    xor a
    ld [hl+], a
    dec bc
    ld a, b
    or c
    jr nz, clear
    ret

copy:                           ; bc bytes from hl to de
    ld a, [hl+]
    ld [de], a
    inc de
    dec bc
    ld a, b
    or c
    jr nz, copy
    ret

send_objects:                   ; runs in high memory, the only one that can be read while objects are sent
    ld a, OBJECTS_PAGE
    ldh [DMA], a
    ld a, 40
.wait:
    dec a
    jr nz, .wait
    ret
send_objects_end:

; ==== Rounds: begin, fight, knockout; and the player's buttons

new_round:
    ld a, [ROUND]
    add a, 1
    daa
    ld [ROUND], a
    ld h, PLAYER
    ld b, PLAYER_START
    call new_fighter
    ld h, OPPONENT
    ld b, OPPONENT_START
    call new_fighter
    ld l, FACING
    ld [hl], 1
    ld a, 1
    ld [THINK], a
    ld a, READY
    ld [STATE], a
    ld a, READY_FRAMES
    ld [WAIT], a
    ret

new_fighter:                    ; h, at the place b
    ld l, INPUT
.field:
    ld [hl], 0
    dec l
    jr nz, .field
    ld [hl], b
    ld l, HEALTH
    ld [hl], FULL_HEALTH
    ret

update:
    ld a, [STATE]
    cp FIGHT
    jr z, .fight
    ld hl, WAIT
    dec [hl]
    ret nz
    cp KO
    jp z, new_round
    ld a, FIGHT
    ld [STATE], a
    ret
.fight:
    call read_buttons
    call think
    ld h, PLAYER
    ld d, OPPONENT
    call update_fighter
    ld h, OPPONENT
    ld d, PLAYER
    call update_fighter
    ld h, OPPONENT
    ld bc, WON
    call judge
    ld h, PLAYER
    ld bc, LOST                 ; and on into judge

judge:                          ; is h down? then count it at bc
    ld a, [STATE]
    cp FIGHT
    ret nz
    ld l, HEALTH
    ld a, [hl]
    or a
    ret nz
    ld a, [bc]
    add a, 1
    daa
    ld [bc], a
    ld l, POSE
    ld [hl], DOWN
    ld l, HEIGHT
    ld [hl], 0
    ld l, AIR
    ld [hl], 0
    ld a, KO
    ld [STATE], a
    ld a, KO_FRAMES
    ld [WAIT], a
    ret

read_buttons:                   ; the lines are low where a button is down, and want a moment to settle
    ld a, $20
    ldh [JOYPAD], a
    ldh a, [JOYPAD]
    ldh a, [JOYPAD]
    cpl
    and $0F
    ld b, a
    ld a, $10
    ldh [JOYPAD], a
    ldh a, [JOYPAD]
    ldh a, [JOYPAD]
    cpl
    and $0F
    swap a
    or b
    ld h, PLAYER
    ld l, INPUT
    ld [hl], a
    ld a, $30
    ldh [JOYPAD], a
    ret

; ==== One fighter, moved by its buttons: jumps, punches, blocks, steps

update_fighter:                 ; h, whose foe is d
    ld e, X
    ld l, X
    ld a, [de]
    cp [hl]
    ld a, 0
    jr nc, .look
    inc a
.look:
    ld l, FACING
    ld [hl], a
    ld l, AIR
    ld a, [hl]
    or a
    jr z, .mercy
    dec [hl]
    ld c, [hl]
    ld b, 0
    push hl
    ld hl, jump_arc
    add hl, bc
    ld a, [hl]
    pop hl
    ld l, HEIGHT
    ld [hl], a
.mercy:
    ld l, MERCY
    ld a, [hl]
    or a
    jr z, .clock
    dec [hl]
.clock:
    ld l, CLOCK
    ld a, [hl]
    or a
    jr z, obey
    dec [hl]
    ld a, [hl]
    cp PUNCH_LANDS
    ret nz
    ld l, POSE
    ld a, [hl]
    cp PUNCH
    ret nz                      ; or on into strike

strike:                         ; h reaches out: does it hit d?
    ld e, MERCY
    ld a, [de]
    or a
    ret nz
    ld l, X
    call difference
    cp REACH+1
    ret nc
    ld l, HEIGHT
    call difference
    cp 16
    ret nc
    ld b, BLOCKED_DAMAGE
    ld e, POSE
    ld a, [de]
    cp BLOCK
    jr z, .damage
    ld b, DAMAGE
    ld a, HURT
    ld [de], a
    ld e, CLOCK
    ld a, HURT_FRAMES
    ld [de], a
.damage:
    ld e, MERCY
    ld a, MERCY_FRAMES
    ld [de], a
    ld e, HEALTH
    ld a, [de]
    sub b
    jr nc, .alive
    ld a, 0
.alive:
    ld [de], a
    ld l, FACING
    ld a, [hl]
    or a
    ld e, X
    ld a, [de]
    jr nz, .shove_left
    add a, SHOVE
    cp RIGHT_WALL
    jr c, .shoved
    ld a, RIGHT_WALL
    jr .shoved
.shove_left:
    cp LEFT_WALL+SHOVE
    jr nc, .room
    ld a, LEFT_WALL+SHOVE
.room:
    sub SHOVE
.shoved:
    ld [de], a
    ret

difference:                     ; a: how far the field l differs between the fighters h and d
    ld e, l
    ld a, [de]
    sub [hl]
    ret nc
    cpl
    inc a
    ret

obey:                           ; do what the buttons of h say
    ld l, INPUT
    ld b, [hl]
    ld l, POSE
    ld [hl], IDLE
    ld a, b
    and A
    jr z, .no_punch
    ld [hl], PUNCH
    ld l, CLOCK
    ld [hl], PUNCH_FRAMES
    ret
.no_punch:
    ld l, AIR
    ld a, [hl]
    or a
    jr nz, .walk                ; in the air there is no block and no second jump
    ld a, b
    and B
    jr z, .no_block
    ld l, POSE
    ld [hl], BLOCK
    ret
.no_block:
    ld a, b
    and UP
    jr z, .walk
    ld [hl], JUMP_FRAMES
.walk:
    ld a, b
    and RIGHT+LEFT
    ret z
    ld l, POSE
    ld [hl], WALK
    and LEFT
    srl a
    ld c, a                     ; 1 is left, as in FACING
    ld l, FACING
    cp [hl]
    jr nz, .step
    ld l, AIR                   ; towards the foe: not through it, unless one of them flies
    ld e, AIR
    ld a, [de]
    or [hl]
    jr nz, .step
    ld l, X
    call difference
    cp CLOSEST
    ret c
.step:
    ld l, X
    ld a, [hl]
    dec c
    jr z, .left
    cp RIGHT_WALL
    ret nc
    inc [hl]
    ret
.left:
    cp LEFT_WALL+1
    ret c
    dec [hl]
    ret

; ==== The opponent

think:                          ; the opponent's buttons
    ld a, [THINK]
    dec a
    ld [THINK], a
    ret nz
    call random
    and 7
    add a, THINK_FRAMES
    ld [THINK], a
    ld h, OPPONENT
    ld d, PLAYER
    ld l, X
    call difference
    ld bc, far_plans
    cp REACH+1
    jr nc, .choose
    ld bc, near_plans
.choose:
    call random
    and 15
    add a, c                    ; the plans do not cross a page
    ld c, a
    ld a, [bc]
    ld b, a
    ld l, FACING
    ld a, [hl]
    or a
    ld a, b
    jr nz, .decided             ; plans are for a fighter who looks to the left
    and RIGHT+LEFT
    jr z, .no_walk
    ld a, b
    xor RIGHT+LEFT
    jr .decided
.no_walk:
    ld a, b
.decided:
    ld l, INPUT
    ld [hl], a
    ret

random:                         ; a: eight new bits of a shift register of sixteen
    push hl
    push bc
    ld a, [RANDOM]
    ld l, a
    ld a, [RANDOM+1]
    ld h, a
    ld b, 8
.bit:
    srl h
    rr l
    jr nc, .next
    ld a, h
    xor $B4
    ld h, a
.next:
    dec b
    jr nz, .bit
    ld a, h
    ld [RANDOM+1], a
    ld a, l
    ld [RANDOM], a
    pop bc
    pop hl
    ret

; ==== Numbers, health bars and fighters, written to memory and sent to the screen in the next pause

draw:
    ld a, [WON]
    ld hl, SCORES+5
    call put_number
    ld a, [LOST]
    ld hl, SCORES+13
    call put_number
    ld a, [PLAYER_HEALTH]
    ld hl, BARS+1
    call put_bar
    ld a, [OPPONENT_HEALTH]
    ld hl, BARS+11
    call put_bar
    ld b, SKY
    ld c, SKY
    ld a, [STATE]
    cp KO
    jr nz, .message
    ld b, GLYPH_K
    ld c, GLYPH_O
.message:
    ld hl, BARS+9
    ld [hl], b
    inc l
    ld [hl], c
    ld de, OBJECTS
    ld h, PLAYER
    ld c, $00                   ; the first palette
    call draw_fighter
    ld h, OPPONENT
    ld c, $10                   ; the second; and on into draw_fighter

draw_fighter:                   ; h, as five objects from de on, in the palette c
    ld l, HEIGHT
    ld a, 104
    sub [hl]
    ld [TOP], a
    call choose_places
    call choose_drawings
    ld a, [TOP]
    ld b, a
    ld a, [BODY]
    call put_pair
    ld l, POSE
    ld a, [hl]
    cp PUNCH
    jr nz, .no_fist
    ld a, [REACHED]
    ld c, a
    ld a, FIST
    jr .fist
.no_fist:
    ld c, 0                     ; an object at the left of the screen's edge is not seen
    ld a, NOTHING
.fist:
    call put_object
    ld a, b
    add a, 16
    ld b, a
    ld a, [LEGS]                ; and on into put_pair

put_pair:                       ; the left half of a drawing behind, the right half in front
    push af
    push af
    ld a, [BACK]
    ld c, a
    pop af
    call put_object
    ld a, [FRONT]
    ld c, a
    pop af
    add a, 2                    ; and on into put_object

put_object:                     ; tile a at the line b and the column c
    push af
    ld a, b
    ld [de], a
    inc e
    ld a, c
    ld [de], a
    inc e
    pop af
    ld [de], a
    inc e
    ld a, [ATTRIBUTES]
    ld [de], a
    inc e
    ret

choose_places:                  ; objects stand 8 to the left of their number
    ld l, FACING
    ld a, [hl]
    or a
    ld l, X
    ld b, [hl]
    jr nz, .left
    ld a, c
    ld [ATTRIBUTES], a
    ld a, b
    add a, 8
    ld [BACK], a
    add a, 8
    ld [FRONT], a
    add a, 8
    ld [REACHED], a
    ret
.left:
    ld a, c
    or $20                      ; mirrored
    ld [ATTRIBUTES], a
    ld a, b
    ld [REACHED], a
    add a, 8
    ld [FRONT], a
    add a, 8
    ld [BACK], a
    ret

choose_drawings:
    ld l, POSE
    ld a, [hl]
    add a, a
    ld c, a
    ld b, 0
    push hl
    ld hl, pose_drawings
    add hl, bc
    ld a, [hl+]
    ld [BODY], a
    ld a, [hl]
    ld [LEGS], a
    pop hl
    ld l, AIR
    ld a, [hl]
    or a
    ld b, LEGS_JUMP
    jr nz, .legs
    ld l, POSE
    ld a, [hl]
    cp WALK
    ret nz
    ld a, [FRAME]
    and 8
    ret z
    ld b, LEGS_STRIDE
.legs:
    ld a, b
    ld [LEGS], a
    ret

put_number:                     ; two decimal digits
    push af
    swap a
    call .digit
    pop af
.digit:
    and 15
    add a, GLYPH_0
    ld [hl+], a
    ret

put_bar:                        ; health, in eight pieces of eight
    ld b, 8
.piece:
    ld c, 0
    cp 8
    jr c, .last
    sub 8
    ld c, a
    ld a, 8
.last:
    add a, BAR_0
    ld [hl+], a
    ld a, c
    dec b
    jr nz, .piece
    ret
